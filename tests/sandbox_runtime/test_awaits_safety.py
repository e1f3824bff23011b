"""Scripts that are right as they stand. Each one runs here as it was given, and must not be changed.

Scripts are parted by lines of dashes; `git.f(x=1)` gives `{"x": 1}`.
"""

import asyncio
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_runtime.guest.script import Script

RIGHT = r"""
calls = [git.f(x=x) for x in range(3)]
results = await asyncio.gather(*calls)
results[2]["x"]
---
c = git.f(x=1)
(await c)["x"]
---
async with asyncio.TaskGroup() as tg:
    t = tg.create_task(git.f(x=1))
t.result()["x"]
---
task = asyncio.create_task(git.f(x=1))
print((await task)["x"])
---
tasks = [asyncio.create_task(git.f(x=x)) for x in range(3)]
for task in asyncio.as_completed(tasks):
    print((await task)["x"])
---
a, b = git.f(x=1), git.f(x=2)
ra, rb = await asyncio.gather(a, b)
---
a, b = await asyncio.gather(git.f(x=1), git.f(x=2))
---
(a, (b, *rest)) = git.f(x=1), (git.f(x=2), git.f(x=3))
await a, await b, [await r for r in rest]
---
calls = []
for x in range(3):
    calls.append(git.f(x=x))
await asyncio.gather(*calls)
---
calls = []
alias = calls
alias.append(git.f(x=1))
await asyncio.gather(*calls)
---
calls = []
calls += [git.f(x=1)]
calls.extend([git.f(x=2)])
calls.insert(0, git.f(x=3))
calls = calls + [git.f(x=4)]
[await c for c in calls]
---
calls = {}
calls["a"] = git.f(x=1)
calls.setdefault("b", git.f(x=2))
calls.update({"c": git.f(x=3)})
calls.update(d=git.f(x=4))
for name, call in calls.items():
    calls[name] = await call
calls["d"]["x"]
---
calls = {x: git.f(x=x) for x in range(3)}
dict(zip(calls, await asyncio.gather(*calls.values())))
---
calls = dict(a=git.f(x=1), b=git.f(x=2))
await calls["a"], await calls.pop("b")
---
calls = [("a", git.f(x=1)), ("b", git.f(x=2))]
out = {}
for name, call in calls:
    out[name] = await call
---
calls = [{"name": "a", "call": git.f(x=1)}]
for entry in calls:
    entry["result"] = await entry["call"]
---
calls = {"a": [git.f(x=1)]}
calls.setdefault("b", []).append(git.f(x=2))
for some in calls.values():
    await asyncio.gather(*some)
---
await asyncio.gather(*(git.f(x=x) for x in range(3)))
---
await asyncio.gather(*map(lambda x: git.f(x=x), range(3)))
---
await asyncio.gather(*[git.f(x=x) for x in range(3)], *[git.f(x=4)])
---
await asyncio.wait_for(git.f(x=1), 5)
---
await asyncio.wait_for(asyncio.shield(git.f(x=1)), timeout=5)
---
done, pending = await asyncio.wait([asyncio.ensure_future(git.f(x=1))])
[d.result()["x"] for d in done]
---
async with asyncio.timeout(5):
    r = await git.f(x=1)
---
def start(x):
    return git.f(x=x)
[await start(x) for x in range(2)]
---
def start(x):
    return git.f(x=x)
await asyncio.gather(*[start(x) for x in range(2)])
---
start = lambda x: git.f(x=x)
await start(1)
---
starts = [lambda: git.f(x=1), lambda: git.f(x=2)]
[await start() for start in starts]
---
def later(call):
    return call
await later(git.f(x=1))
---
async def run(call):
    return await call
(await run(git.f(x=1)))["x"]
---
async def run(*calls):
    return await asyncio.gather(*calls)
await run(git.f(x=1), git.f(x=2))
---
async def run(**calls):
    return {name: await call for name, call in calls.items()}
await run(a=git.f(x=1), b=git.f(x=2))
---
async def run(call=git.f(x=1)):
    return await call
await run()
---
async def limited(call, limit):
    async with limit:
        return await call
limit = asyncio.Semaphore(2)
await asyncio.gather(*[limited(git.f(x=x), limit) for x in range(3)])
---
async def safely(call):
    try:
        return await call
    except Exception as error:
        return {"error": str(error)}
results = [await safely(c) for c in [git.f(x=1), git.f(x=2)]]
---
async def deferred(x):
    return git.f(x=x)
await (await deferred(1))
---
async def deferred(x):
    return git.f(x=x)
for call in await asyncio.gather(deferred(1), deferred(2)):
    print((await call)["x"])
---
async def deferred(x):
    return [git.f(x=x)]
calls = await deferred(1)
await calls[0]
---
async def main():
    c = git.f(x=1)
    d = git.f(x=2)
    return await c, await d
asyncio.run(main()) if False else await main()
---
def each():
    for x in range(3):
        yield git.f(x=x)
[await c for c in each()]
---
async def each():
    for x in range(3):
        yield git.f(x=x)
[await c async for c in each()]
---
def each(calls):
    yield from calls
[await c for c in each([git.f(x=1)])]
---
queue = asyncio.Queue()
queue.put_nowait(git.f(x=1))
await queue.put(git.f(x=2))
await (await queue.get()), await queue.get_nowait()
---
from collections import deque
calls = deque([git.f(x=1)])
calls.append(git.f(x=2))
while calls:
    await calls.popleft()
---
import heapq
heap = []
heapq.heappush(heap, (1, git.f(x=1)))
await heapq.heappop(heap)[1]
---
import itertools
calls = itertools.chain([git.f(x=1)], [git.f(x=2)])
for call in calls:
    await call
---
calls = sorted([(2, git.f(x=2)), (1, git.f(x=1))], key=lambda pair: pair[0])
[await call for _, call in calls]
---
calls = [git.f(x=1), git.f(x=2)]
for call in reversed(list(enumerate(calls))):
    await call[1]
---
calls = iter([git.f(x=1)])
await next(calls)
---
c = git.f(x=1) if True else None
if c is not None:
    await c
---
c = None or git.f(x=1)
await c
---
if c := git.f(x=1):
    await c
---
match git.f(x=1):
    case call:
        await call
---
match [git.f(x=1), git.f(x=2)]:
    case [first, *rest]:
        await first, await rest[0]
---
class Job:
    def __init__(self, call):
        self.call = call
    async def run(self):
        return await self.call
(await Job(git.f(x=1)).run())["x"]
---
from dataclasses import dataclass
@dataclass
class Job:
    name: str
    call: object
jobs = [Job("a", git.f(x=1)), Job(name="b", call=git.f(x=2))]
[await job.call for job in jobs]
---
from collections import namedtuple
Job = namedtuple("Job", "name call")
name, call = Job("a", git.f(x=1))
await call
---
from typing import NamedTuple, Any
class Job(NamedTuple):
    name: str
    call: Any
name, call = Job("a", git.f(x=1))
await call
---
from types import SimpleNamespace
job = SimpleNamespace(call=git.f(x=1))
await job.call
---
class Jobs:
    calls = []
    def add(self, call):
        self.calls.append(call)
    async def run(self):
        return [await call for call in self.calls]
jobs = Jobs()
jobs.add(git.f(x=1))
await jobs.run()
---
class Pool:
    def __init__(self):
        self.calls = {}
    def __setitem__(self, name, call):
        self.calls[name] = call
    def __getitem__(self, name):
        return self.calls[name]
pool = Pool()
pool["a"] = git.f(x=1)
await pool["a"]
---
class Pipe:
    def __or__(self, call):
        return call
await (Pipe() | git.f(x=1))
---
class Job:
    @property
    def call(self):
        return git.f(x=1)
await Job().call
---
class Jobs:
    def __getattr__(self, name):
        return git.f(x=1)
await Jobs().anything
---
class Job:
    def __init__(self, call):
        self._call = call
    def __await__(self):
        return self._call.__await__()
await Job(git.f(x=1))
---
class Base:
    def __init__(self, call):
        self.call = call
class Job(Base):
    pass
await Job(git.f(x=1)).call
---
def retried(function):
    async def wrapper(*args):
        return await function(*args)
    return wrapper
@retried
async def run(call):
    return await call
await run(git.f(x=1))
---
import functools
start = functools.partial(git.f, x=1)
await start()
---
import functools
async def both(first, second):
    return await first, await second
await functools.partial(both, git.f(x=1))(git.f(x=2))
---
import contextlib
with contextlib.closing(git.f(x=1)) as call:
    await call
---
import inspect
c = git.f(x=1)
if inspect.isawaitable(c):
    c = await c
---
c = git.f(x=1)
c.close()
---
globals()["c"] = git.f(x=1)
await c
---
c = git.f(x=1)
await eval("c")
---
c = git.f(x=1)
await globals()["c"]
---
setattr(asyncio, "call", git.f(x=1))
await asyncio.call
---
job = types.SimpleNamespace()
job.call = git.f(x=1)
await getattr(job, "call")
---
job = types.SimpleNamespace()
job.call = git.f(x=1)
for call in vars(job).values():
    await call
---
def outer():
    calls = []
    def add(x):
        calls.append(git.f(x=x))
    add(1)
    return calls
[await c for c in outer()]
---
pending = None
def begin():
    global pending
    pending = git.f(x=1)
begin()
await pending
---
def outer():
    call = None
    def begin():
        nonlocal call
        call = git.f(x=1)
    begin()
    return call
await outer()
---
git = {"f": lambda x: x}
git["f"](1)
---
def git():
    return 1
git()
---
class git:
    @staticmethod
    def f(x):
        return x
git.f(x=1)
---
def call(git):
    return git.f(1)
call(types.SimpleNamespace(f=lambda x: x))
---
for git in [types.SimpleNamespace(f=lambda: 1)]:
    git.f()
---
try:
    1 / 0
except ZeroDivisionError as git:
    git.with_traceback(None)
---
f = git.f
f = print
f("not the library")
---
from tools.git import f
def f(x):
    return x
f(1)
---
results = {}
async def fetch(name, call):
    results[name] = await call
async with asyncio.TaskGroup() as tg:
    for name in "ab":
        tg.create_task(fetch(name, git.f(x=name)))
results["a"]["x"]
---
runner = asyncio.gather(git.f(x=1), git.f(x=2))
first, second = await runner
---
stack = contextlib.AsyncExitStack()
async with stack:
    r = await git.f(x=1)
---
loop = asyncio.get_running_loop()
task = loop.create_task(git.f(x=1))
(await task)["x"]
---
calls = (git.f(x=x) for x in range(2))
out = []
for call in calls:
    out.append(await call)
---
calls = [git.f(x=x) for x in range(4)]
first, rest = calls[0], calls[1:]
[await first, *await asyncio.gather(*rest)]
---
def pick(calls, n):
    return calls[n]
calls = [git.f(x=1), git.f(x=2)]
await pick(calls, 0), await pick(calls, 1)
---
calls = tuple(git.f(x=x) for x in range(2))
copies = [*calls]
await asyncio.gather(*copies)
---
chosen = max([(1, git.f(x=1)), (2, git.f(x=2))], key=lambda pair: pair[0])
await chosen[1]
---
async def first(*calls):
    done, _ = await asyncio.wait([asyncio.create_task(c) for c in calls])
    return done.pop().result()
(await first(git.f(x=1)))["x"]
---
async def repeat(make):
    return [await make() for _ in range(2)]
await repeat(lambda: git.f(x=1))
---
coroutines = []
def collect(x):
    coroutines.append(git.f(x=x))
for x in range(2):
    collect(x)
await asyncio.gather(*coroutines)
---
async def chain(x, *steps):
    for step in steps:
        x = await step(x)
    return x
await chain(1, lambda x: git.f(x=x), lambda r: git.f(x=r["x"]))
"""


class Git(types.ModuleType):
    """Stands for a namespace of the library: every function gives its arguments back."""

    def __getattr__(self, name: str) -> Any:
        async def function(**arguments: Any) -> dict[str, Any]:
            return arguments

        return function


@pytest.fixture
def library() -> Iterator[dict[str, Any]]:
    git, tools = Git("git"), types.ModuleType("tools")
    tools.git = git  # type: ignore[attr-defined]
    sys.modules.update({"tools": tools, "tools.git": git})
    yield {
        "git": git,
        "tools": tools,
        "asyncio": asyncio,
        "types": types,
        "contextlib": __import__("contextlib"),
    }
    del sys.modules["tools"], sys.modules["tools.git"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", RIGHT.strip("\n").split("\n---\n"))
def test_right_script_is_not_changed(text: str, library: dict[str, Any]) -> None:
    script = Script.parse(text, frozenset({"git"}))
    assert script.source == text
    assert script.notices == []
    script.run(library, asyncio.run)

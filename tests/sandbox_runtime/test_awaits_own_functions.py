"""Calls that go through functions, generators and classes of the script's own."""

import pytest

from tests.sandbox_runtime.right_scripts import run_unchanged, scripts

RIGHT = r"""
await asyncio.gather(*map(lambda x: git.f(x=x), range(3)))
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
calls = sorted([(2, git.f(x=2)), (1, git.f(x=1))], key=lambda pair: pair[0])
[await call for _, call in calls]
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
from typing import NamedTuple, Any
class Job(NamedTuple):
    name: str
    call: Any
name, call = Job("a", git.f(x=1))
await call
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
async def both(first, second):
    return await first, await second
await functools.partial(both, git.f(x=1))(git.f(x=2))
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
results = {}
async def fetch(name, call):
    results[name] = await call
async with asyncio.TaskGroup() as tg:
    for name in "ab":
        tg.create_task(fetch(name, git.f(x=name)))
results["a"]["x"]
---
def pick(calls, n):
    return calls[n]
calls = [git.f(x=1), git.f(x=2)]
await pick(calls, 0), await pick(calls, 1)
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


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", scripts(RIGHT))
def test_right_script_is_not_changed(text: str) -> None:
    run_unchanged(text)

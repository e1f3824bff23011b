"""Calls that a script keeps, hands on and awaits later: in variables, containers, tasks and queues."""

import pytest

from tests.sandbox_runtime.right_scripts import run_unchanged, scripts

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
from collections import namedtuple
Job = namedtuple("Job", "name call")
name, call = Job("a", git.f(x=1))
await call
---
from types import SimpleNamespace
job = SimpleNamespace(call=git.f(x=1))
await job.call
---
import functools
start = functools.partial(git.f, x=1)
await start()
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
calls = tuple(git.f(x=x) for x in range(2))
copies = [*calls]
await asyncio.gather(*copies)
"""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", scripts(RIGHT))
def test_right_script_is_not_changed(text: str) -> None:
    run_unchanged(text)

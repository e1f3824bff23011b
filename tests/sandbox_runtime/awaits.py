"""Scripts whose awaits were forgotten, and scripts that are right as they stand; lines of dashes part them."""

FORGOTTEN_LINES = r"""
~git.f()
~tools.git.f()
x = ~git.f()
x += ~git.f()
a, *b = ~git.f()
if ~git.f(): pass
for x in ~git.f(): print(x)
with ~git.f() as x: pass
«git.f()»['x']
«git.f()».x
«git.f()».get('x', 1)
(«git.f()»)['x']
~git.f() + ~git.g()
~git.f() or []
~git.f() if a else ~git.g()
[*~git.f()]
print(*~git.f(), **~git.g())
x[~git.f()]
~git.f(x=~git.g())
«git.f(x=«git.g()»['id'])»['y']
(y := ~git.f())['x']
print('äöü€😀', «git.f()»['ß'])
é = ~git.f(); ü = «git.g()».x
x = 1if ~git.f()else 2
[~git.f(x=x) for x in xs]
{~git.f(x=x) for x in xs}
[x for x in ~git.f()]
[x for x in xs if ~git.f()]
[[~git.f(x=y) for y in x] for x in xs]
sum(x['n'] for x in ~git.f())
sum([«git.f(x=x)»['n'] for x in xs])
print(~git.f())
for n in ~git.f(): ~git.g(n=n)
~portal.sleep(1)
x = «portal.search('a')»['functions']
from portal import approve; ~approve('now?')
"""
"""One script a line. `~` stands for an inserted `await `, `«` and `»` for the `(await ` and `)` around a call."""

FORGOTTEN = r"""
x = y = ~git.f()
x['a']
---
a, b = ~git.f(), ~git.g()
a['x']
---
results = {}
for x in xs:
    results[x] = ~git.f(x=x)
results['a']['n']
---
rows = [~git.f(x=x) for x in xs]
for x, row in zip(xs, rows): print(x, row['n'])
---
await git.f(ids=[~git.g(), {'a': ~git.h()}])
---
match ~git.f():
    case {'a': x}: print(x)
---
(
  «git.f()»
)['x']
---
x = «git.f(
  a=1,
)»['y']
---
x = «git.f( # c
)»['y'] # d
---
if 1:
	~git.f()
---
'''
'''; ~git.f()
---
rows = [~git.f(x=x) for x in xs]
rows[0]['a']
---
from tools import git as g
~g.f()
---
import git
~git.f()
---
import tools as t
~t.git.f()
---
from tools.git import f
~f()
---
from git import f as log
~log()
---
from git import *
~git.f()
---
async def main():
    import git as g
    ~g.f()
---
~git.f()
git = «git.g()»['x']
git.h()
---
def f(git): git.f()
~git.g()
---
def f():
    git = {}
    git.f()
~git.g()
---
out = []
for x in xs:
    r = ~git.f(x=x)
    out.append(r['n'])
out
---
async def main():
    r = ~git.f()
    return r['n']
await main()
---
import asyncio
async def one(x): return ~git.f(x=x)
rs = await asyncio.gather(*(one(x) for x in xs))
rs[0]['n']
---
a = await git.f()
for x in a: ~git.g(x=x)
---
import asyncio
rs = await asyncio.gather(git.f(), git.g())
x = ~git.h(a=rs[0]['n'])
x
---
issues = ~git.f()
await asyncio.gather(*[git.g(n=issue['n']) for issue in issues])
"""

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
calls = []
for x in range(3):
    calls.append(git.f(x=x))
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
calls = [("a", git.f(x=1)), ("b", git.f(x=2))]
out = {}
for name, call in calls:
    out[name] = await call
---
await asyncio.gather(*(git.f(x=x) for x in range(3)))
---
done, pending = await asyncio.wait([asyncio.ensure_future(git.f(x=1))])
[d.result()["x"] for d in done]
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
c = git.f(x=1) if True else None
if c is not None:
    await c
---
calls = (git.f(x=x) for x in range(2))
out = []
for call in calls:
    out.append(await call)
---
def start(x):
    return git.f(x=x)
await asyncio.gather(*[start(x) for x in range(2)])
---
async def run(call):
    return await call
(await run(git.f(x=1)))["x"]
---
async def safely(call):
    try:
        return await call
    except Exception as error:
        return {"error": str(error)}
results = [await safely(c) for c in [git.f(x=1), git.f(x=2)]]
---
def each():
    for x in range(3):
        yield git.f(x=x)
[await c for c in each()]
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
results = {}
async def fetch(name, call):
    results[name] = await call
async with asyncio.TaskGroup() as tg:
    for name in "ab":
        tg.create_task(fetch(name, git.f(x=name)))
results["a"]["x"]
---
from itertools import islice
calls = iter([git.f(x=x) for x in range(5)])
while some := list(islice(calls, 2)): await asyncio.gather(*some)
---
from collections import namedtuple
Job = namedtuple("Job", "name call")
jobs = [Job("a", git.f(x=1))]
[await job.call for job in jobs]
---
calls = dict(a=git.f(x=1), b=git.f(x=2))
await asyncio.gather(*calls.values())
---
from typing import Any, cast
await cast(Any, git.f(x=1))
---
class Calls(list):
    async def __aiter__(self):
        for call in list.__iter__(self): yield call
calls = Calls()
calls += [git.f(x=1)]
async for call in calls: await call
---
from asyncio import gather as together
calls = [git.f(x=1), git.f(x=2)]
await together(*calls)
---
both = asyncio.gather
await both(git.f(x=1), git.f(x=2))
---
async def each(**calls): return await asyncio.gather(*calls.values())
await each(a=git.f(x=1), b=git.f(x=2))
---
async def build(): return [git.f(x=x) for x in range(2)]
await asyncio.gather(*(await build()))
---
class Limiter:
    async def __call__(self, call): return await call
limited = Limiter()
await asyncio.gather(limited(git.f(x=1)), limited(git.f(x=2)))
---
await asyncio.gather(*[(lambda c: asyncio.wait_for(c, 5))(git.f(x=1))])
---
from functools import partial
in_time = partial(asyncio.wait_for, timeout=5)
await in_time(git.f(x=1))
---
async def main():
    job = asyncio.Task(git.f(x=1))
    return await job
await main()
---
class Base:
    def __init__(self, call): self.call = call
class Job(Base):
    async def run(self): return await self.call
await Job(git.f(x=1)).run()
---
async def later(call=git.f(x=1)): return await call
await later()
---
match [git.f(x=1)]:
    case [call]: await call
---
async def start(): return git.f(x=1)
call = await start()
await call
---
def run(coro): return asyncio.wait_for(coro, 5)
await run(git.f(x=1))
---
names = {git.f(x=1): "a"}
for call, name in names.items(): await call
---
steps = {"run": lambda call: call}
await steps["run"](git.f(x=1))
---
git = {"f": lambda x: x}
git["f"](1)
---
def call(git):
    return git.f(1)
call(types.SimpleNamespace(f=lambda x: x))
---
from tools.git import f
def f(x):
    return x
f(1)
"""
"""`git.f(x=1)` gives `{"x": 1}`."""

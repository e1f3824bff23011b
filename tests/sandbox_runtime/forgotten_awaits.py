"""Scripts with marks where an `await` was forgotten.

`~` stands for an inserted `await `, `«` and `»` for the `(await ` and `)` around a call that needs parentheses.
Scripts are parted by lines of dashes.
"""

PLACES = r"""
~git.f()
---
~git.f(x=1, y=[2])
---
~tools.git.f()
---
x = ~git.f()
---
x: dict = ~git.f()
---
x = y = ~git.f()
x['a']
---
x += ~git.f()
---
a, b = ~git.f(), ~git.g()
a['x']
---
a, b = ~git.f()
---
a, *b = ~git.f()
---
return ~git.f()
---
if ~git.f(): pass
---
while ~git.f(): pass
---
for x in ~git.f(): print(x)
---
with ~git.f() as x: pass
---
assert ~git.f(), ~git.g()
---
raise ~git.f()
---
match ~git.f():
    case {'a': x}: print(x)
---
match 1:
    case _ if ~git.f(): pass
---
try:
    ~git.f()
except E:
    ~git.g()
---
try: pass
finally: ~git.f()
---
del «git.f()»['x']
---
if a: pass
elif ~git.f(): pass
else: ~git.g()
---
for x in xs: pass
else: ~git.f()
---
~git.f(); ~git.g()
---
def f(x=~git.f()): pass
---
def f(*, x=~git.f()): pass
---
@~git.f()
def f(): pass
---
class A(~git.f()): pass
---
g = lambda x=~git.f(): x['a']
---
global x
x = ~git.f()
"""

PRECEDENCE = r"""
«git.f()»['x']
---
«git.f()»['x'][0]
---
«git.f()».x
---
«git.f()».get('x', 1)
---
«git.f()»()
---
(~git.f())['x']
---
( ~git.f() ).x
---
(
  ~git.f()
)['x']
---
-~git.f()
---
not ~git.f()
---
~git.f() ** 2
---
2 ** ~git.f()
---
~git.f() + ~git.g()
---
x in ~git.f()
---
~git.f() == ~git.g()
---
~git.f() or []
---
~git.f() if a else ~git.g()
---
[*~git.f()]
---
{**~git.f()}
---
print(*~git.f(), **~git.g())
---
x[~git.f()]
---
x[~git.f():~git.g()]
---
~git.f(x=~git.g())
---
«git.f(x=«git.g()»['id'])»['y']
---
(y := ~git.f())['x']
---
x = (~git
  .f())
---
x = ~git.f(
  a=1,
)
---
x = «git.f(
  a=1,
)»['y']
---
x = «git.f( # c
)»['y'] # d
---
print('äöü€😀', «git.f()»['ß'])
---
é = ~git.f(); ü = «git.g()».x
---
if 1:
	~git.f()
---
x = 1if ~git.f()else 2
---
x = not(~git.f())
---
'''
'''; ~git.f()
---
x = \
  ~git.f()
"""

COMPREHENSIONS = r"""
[~git.f(x=x) for x in xs]
---
{~git.f(x=x) for x in xs}
---
{~git.f(): ~git.g() for x in xs}
---
[x for x in ~git.f()]
---
[x for x in xs if ~git.f()]
---
[y for x in xs for y in ~git.f(x=x)]
---
[[~git.f(x=y) for y in x] for x in xs]
---
sum(x['n'] for x in ~git.f())
---
sum([«git.f(x=x)»['n'] for x in xs])
---
rows = [~git.f(x=x) for x in xs]
rows[0]['a']
---
d = {x: ~git.f() for x in xs}
for k, v in d.items(): v['a']
"""

NAMES = r"""
from tools import git
~git.f()
---
from tools import git as g
~g.f()
---
import git
~git.f()
---
import git as g
~g.f()
---
import tools
~tools.git.f()
---
import tools.git
~tools.git.f()
---
import tools.git as g
~g.f()
---
import tools as t
~t.git.f()
---
from tools.git import f
~f()
---
from tools.git import f as h
«h()»['x']
---
from git import f as log
~log()
---
from git import *
~git.f()
---
g = git
~g.f()
---
log = git.f
~log()
---
t = tools
g = t.git
h = g.f
~h()
---
async def main():
    import git as g
    ~g.f()
---
weather = ~weather.f()
print(weather['t'])
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
[git.f() for git in xs]
~git.g()
---
class A:
    git = 1
    async def f(self): ~git.f()
"""

DATA = r"""
print(~git.f())
---
len(~git.f())
---
sorted(~git.f(), key=lambda r: r['n'])
---
import json
json.dumps(~git.f())
---
from json import dumps as d
d(~git.f())
---
import re
re.findall('a', ~git.f())
---
from collections import Counter
Counter(~git.f())
---
', '.join(~git.f())
---
'{}'.format(~git.f())
---
out = []
out.append(~git.f())
print(out)
---
out = {}
out['a'] = ~git.f()
out
---
out = []
for x in xs:
    r = ~git.f(x=x)
    out.append(r['n'])
out
---
r = ~git.f()
r = r['items'] if r else []
r[0]
---
def names(rows): return [r['n'] for r in rows]
names(~git.f())
---
def show(*rows, **more): print(rows, more)
show(~git.f(), a=~git.g())
---
show = lambda r: r['n']
show(~git.f())
---
list(map(lambda r: r['n'], [~git.f()]))
---
async def main():
    r = ~git.f()
    return r['n']
await main()
---
async def one(x): return ~git.f(x=x)
r = await one(1)
r['n']
---
import asyncio
async def one(x): return ~git.f(x=x)
rs = await asyncio.gather(*(one(x) for x in xs))
rs[0]['n']
---
import asyncio
async def main(): return ~git.f()
print(asyncio.run(main()))
---
async def unused(): ~git.f()
---
class A:
    async def f(self):
        self.r = ~git.f()
        return self.r['n']
---
from dataclasses import dataclass
@dataclass
class A:
    r: dict
A(~git.f()).r['n']
---
async def each():
    r = ~git.f()
    yield r['n']
---
r1 = ~github.create_issue(title='x')
r2 = ~github.list_issues()
print(r1, r2['items'][0])
---
a = ~git.f()
b = await git.g()
a['x'] + b['x']
---
a = await git.f()
for x in a: ~git.g(x=x)
---
import asyncio
rs = await asyncio.gather(git.f(), git.g())
x = ~git.h(a=rs[0]['n'])
x
"""

F_STRINGS = r"""
f'{~git.f()}'
---
f'ä{«git.f()»["x"]:>{~git.g()}} {~git.h()!r}'
---
f'''
{«git.f()».x}'''
---
f'{f"{~git.f()}"}'
"""

"""The facts about a script that the check gets."""

from typing import Any

import pytest

from sandbox_runtime.guest.analysis.usage import UNKNOWN, Usage
from sandbox_runtime.guest.script import Script

NAMESPACES = frozenset({"git", "files", "weather", "search"})


def usage(text: str, *known: str) -> Usage:
    found = Script.parse(text, NAMESPACES - {*known}, known).usage
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("await git.log()", [("git", "log", 1)]),
        ("from tools import git as g\nawait g.log()", [("git", "log", 2)]),
        ("import git\nstart = git.log", [("git", "log", 2)]),
        ("from tools.git import log as l\nawait l()", [("git", "log", 1), ("git", "log", 2)]),
        ("from tools import nothing", [("nothing", "", 1)]),
        ("import tools.nothing", [("nothing", "", 1)]),
        ("portal.run.id, portal.run, portal(1)", []),
        ("git.log.__doc__, git.__name__, tools.__path__", [("git", "log", 1)]),
        ("def f(git):\n    git.log()", []),
        ("git = git.log()\ngit.split()", [("git", "log", 1)]),
        ("git.log = print\ngit.log()", []),
        ("'git.log()'", []),
        ("git.log('a.json')\njson.loads('[]')", [("git", "log", 1), ("json", "loads", 2)]),
        ("if hasattr(git, 'maybe'):\n    git.maybe()\ngit.log", [("git", "log", 3)]),
        ("if hasattr(tools, 'calendar'):\n    await tools.calendar.list()", []),
        ("nothing.log()", [("nothing", "log", 1)]),
        ("log('', 'The end.')", [("", "log", 1)]),
        ("from x import *\nlog()", []),
    ],
)
def test_uses_are_what_can_be_seen_in_the_text(text: str, uses: list[tuple[str, str, int]]) -> None:
    assert [tuple(use[:3]) for use in usage(text + "\n()").uses] == uses


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("(a=1, b=-2.5, c=None, d='x', e=True)", {"a": 1, "b": -2.5, "c": None, "d": "x", "e": True}),
        ("(3, 'x', a=1)", {"*0": 3, "*1": "x", "a": 1}),
        ("(a=[1, x], b={'c': x, 'd': (1,)})", {"a": [1, UNKNOWN], "b": {"c": UNKNOWN, "d": [1]}}),
        ("(a=f(), b={x: 1}, c={1}, d=b'x', e=1e999)", dict.fromkeys("abcde", UNKNOWN)),
        ("(**{'a': 1})", {"a": 1}),
        ("(*x, **y)", {"**": UNKNOWN}),
        ("(a='\\ud800', b=1 << 99)", {"a": UNKNOWN, "b": UNKNOWN}),
    ],
)
def test_literals_of_a_call_are_told(call: str, arguments: dict[str, Any]) -> None:
    assert usage(f"await git.log{call}").uses[0][4] == arguments


def test_names_of_earlier_runs_are_no_uses() -> None:
    assert usage("git.log(); rows.sort()", "git", "rows").uses == []


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("f(\n1)\nif x:\n    f()\nelse:\n    f()", [1, 2, 3, 4, 6]),
        ("try:\n    f()\nexcept E:\n    f()\nf()", [5]),
        ("def a():\n    f()\ndef b():\n    f()\nb()", [4, 5]),
        ("class A:\n    def a(self):\n        f()\nA().a()", [3, 4]),
        ("with suppress(E):\n    f()", [1]),
        ("if TYPE_CHECKING:\n    f()\nf()", [3]),
    ],
)
def test_certain_lines_stand_outside_of_try_where_they_are_reached(text: str, certain: list[int]) -> None:
    assert usage(text).unguarded_lines == certain


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("git.log", {"git"}),
        ("from tools import git as g, weather", {"git", "weather"}),
        ("from tools.git import log", {"git"}),
        ("getattr(tools, 'git')", {"git"}),
        ("eval('git.log()')", {"git"}),
        ("print('git')", set()),
    ],
)
def test_names_are_the_namespaces_a_script_mentions(text: str, names: set[str]) -> None:
    assert Script.parse(text, NAMESPACES).names == names


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("async def main():\n    return await git.log()", ["not_called"]),
        ("def helper(): pass\nasync def main():\n    helper()\nprint(1)", ["not_called"]),
        ("async def collect():\n    return await git.log()\nx = 1", []),
        ("import nothing_here\nx = input('?')\nf = open('x')", ["not_there", "not_there", "no_files"]),
        ("try:\n    import nothing_here\nexcept ImportError:\n    print(1)", []),
        ("if sys.version_info < (3, 11):\n    import tomli", []),
        ("x = open('a') if exists('a') else None", []),
        ("import sys\nsys.stdin = print('a')\ninput()", []),
        ("print()\nimport nothing_here\nimport nothing_here.deep", ["not_there"]),
        ("print()\n" + "\n".join(f"import nothing_{number}" for number in range(99)), ["not_there"] * 10),
        ("def main(): pass\n[f() for f in globals().values()]", []),
        ("r = await git.log()\nfor x in r: print(x)", ["keys_only"]),
        ("r = await git.log()\nr.get('rows')", ["keys_only"]),
        ("r = await git.log()\nr.get(id), dict().get('rows'), (r or {}).get('rows'), r['a'].get('rows')", []),
        ("r = await git.log()\nif 'a' in r: print(r['a'])", []),
        ("import git, tools.git, portal, json\nfrom portal import sleep\nprint(1)", []),
        ("def open(x): return x\nopen(1)", []),
        ("if portal.approve('?') and True: print(1)", ["not_awaited"]),
        ("def f():\n    portal.sleep(1).x\nf()", ["not_awaited"]),
        ("await portal.ask('?')", ["not_there"]),
        ("x = portal.log\nx('?')", ["not_there"]),
        ("portal.run.id, portal.Response, portal.text([]), portal.search('x'), portal.__name__", []),
        ("portal.ask('?') if hasattr(portal, 'ask') else 1", []),
        ("portal.mine = 1\nprint(portal.mine)", []),
        ("async def ask(): return await portal.approve('?')\nif ask(): print(1)", ["not_awaited"]),
        ("async def ask(): pass\nask = id(ask)\nif ask(): print(1)", []),
        ("@id\nasync def ask(): pass\nif ask(): print(1)", []),
        ("async def ask(): pass\ndef g(ask):\n    if ask(): print(1)\ng(id)", []),
        ("await git.log()\n[timezone.utc, timezone]", ["not_defined"]),
        ("await git.log()\nlimit = most", ["not_defined"]),
        ("from git import *\n[timezone.utc]", []),
        ("exec('a = 1')\nprint(a)", []),
        ("if 'rows' in dir(): print(rows)\nx: Row = [row for row in []]", []),
        ("x = a if await git.log() else b", []),
        ("print()\nx: Annotated[int, Field(ge=low), lambda n: n < high, [a for a in some]] = 1", []),
    ],
)
def test_what_cannot_work_is_told_before_the_run(text: str, codes: list[str]) -> None:
    assert [code for _, code, *_ in usage(text).problems] == codes


def test_what_a_session_defined_may_call_main_later() -> None:
    assert usage("def main(): pass", "main").problems == []


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("await time.now(zone=1)", "await time_.now(zone=1)"),
        (
            "import time\nx = time.now()['a']\ntime.sleep(0)",
            "import time\nx = (await time_.now())['a']\ntime.sleep(0)",
        ),
        ("list.items_of(a=1)", "await list_.items_of(a=1)"),
        ("time.sleep(0)", "time.sleep(0)"),
        ("time = f()\ntime.now()", "time = f()\ntime.now()"),
        ("import json as time\ntime.now()", "import json as time\ntime.now()"),
        ("mcp__time__now(a=1)['b']", "(await time_.now(a=1))['b']"),
        ("é = 1; x = str(mcp__list___of())", "é = 1; x = str(await list_._of())"),
        ("mcp__other__now()", "mcp__other__now()"),
    ],
)
def test_foreign_name_means_the_namespace_where_it_is_nothing_else(text: str, mended: str) -> None:
    script = Script.parse(text, frozenset({"time_", "list_"}))
    assert script.source == mended
    assert ("_." in mended) == bool(script.names)
    assert script.usage is not None
    assert {use[0] for use in script.usage.uses if "_." in mended} <= {"time_", "list_"}

"""What the check finds in scripts, with a real ty over real stubs."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from portal.check.checker import Checker, open_checker
from portal.check.diagnostic import Diagnostic
from sandbox_runtime.prepared import LibraryUse, Prepared
from tests.portal.check.small_library import library, prepared, snapshot, stubs

pytestmark = pytest.mark.anyio

LIBRARY = library()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def checker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Checker]:
    folder: Path = tmp_path_factory.mktemp("stubs")
    changed = stubs(folder, LIBRARY)
    async with open_checker(folder) as opened:
        await opened.update(LIBRARY, changed)
        yield opened


async def check(checker: Checker, text: str) -> Sequence[Diagnostic]:
    return await checker.check(prepared(text, LIBRARY), snapshot(LIBRARY))


# Wrong in every run: what is said must name the words given here.
REFUSED = [
    ("await github.list_issues()", 1, "invalid_arguments", ["repo"]),
    ("github.list_issues()", 1, "invalid_arguments", ["repo"]),
    ("x = 1\n\nawait github.list_issues(\n  repo='a',\n  stat='open',\n)", 5, "invalid_arguments", ["stat", "state"]),
    ("await github.list_issues(repo='a', state='opne')", 1, "invalid_arguments", ["opne", "open"]),
    ("await github.list_issues(repo=5)", 1, "invalid_arguments", ["repo", "5"]),
    ("await github.list_issues(repo=None)", 1, "invalid_arguments", ["repo", "None"]),
    ("await github.list_issues(repo='a', labels='bug')", 1, "invalid_arguments", ["labels", "list"]),
    ("await github.list_issues(repo='a', labels=['bug', 5])", 1, "invalid_arguments", ["labels[1]", "5"]),
    ("await github.list_issues(repo='a', limit='3')", 1, "invalid_arguments", ["limit", "int"]),
    ("await github.list_issues(repo='a', limit=-3)", 1, "invalid_arguments", ["limit", "-3"]),
    ("await github.list_issues(repo='a', limit=True)", 1, "invalid_arguments", ["limit"]),
    ("await github.list_issues(repo='a', class_=3)", 1, "invalid_arguments", ["class_"]),
    ("await github.list_issues(repo='a', filter={})", 1, "invalid_arguments", ["filter", "by"]),
    ("await github.list_issues(repo='a', filter={'by': 'x', 'q': 1})", 1, "invalid_arguments", ["filter", "q"]),
    ("await github.list_issues(repo='a', target=[1])", 1, "invalid_arguments", ["target"]),
    ("await github.list_issues('a')", 1, "invalid_arguments", ["keyword"]),
    ("state = 'opne'\nawait github.list_issues(repo='a', state=state)", 2, "invalid_arguments", ["opne"]),
    ("rows = [1]\nawait github.list_issues(repo=len(rows))", 2, "invalid_arguments", ["repo", "int"]),
    ("n = 1\nawait github.list_issues(repo='a', limit=f'{n}')", 2, "invalid_arguments", ["limit", "str"]),
    ("await github.list_issues(repo='a', labels={x: 1 for x in 'ab'})", 1, "invalid_arguments", ["labels", "dict"]),
    ("from tools import github as gh\nawait gh.list_issues()", 2, "invalid_arguments", ["github.list_issues"]),
    ("from tools.github import list_issues as l\nawait l()", 2, "invalid_arguments", ["github.list_issues"]),
    ("start = github.list_issues\nawait start()", 2, "invalid_arguments", ["github.list_issues"]),
    ("import asyncio\nawait asyncio.gather(echo.say(text='a'), echo.say())", 2, "invalid_arguments", ["text"]),
    ("async def main():\n    return await echo.say(txt='a')\nawait main()", 2, "invalid_arguments", ["txt", "text"]),
    ("if 1:\n    return await echo.say(text=1)", 2, "invalid_arguments", ["text"]),
    ("from __future__ import annotations\n'ß'; await echo.say(text=1)", 2, "invalid_arguments", ["text"]),
    ("r = await github.list_issues(repo='a')\nr['items'][0].number", 2, "unknown_field", ["list_issues", "number"]),
    ("def f():\n    return github.list_issues(repo='a')['items']\nf()", 2, "not_awaited", ["github.list_issues"]),
    ("sum(github.get_issue(n=n)['number'] for n in [1])", 1, "not_awaited", ["github.get_issue"]),
    ("f = lambda: github.get_issue().number", 1, "not_awaited", ["github.get_issue"]),
    ("def f():\n    c = github.get_issue()\n    for x in c: print(x)\nf()", 3, "not_awaited", ["github.get_issue"]),
    ("github(repo='a')", 1, "not_a_function", ["github"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "code", "words"), REFUSED)
async def test_script_that_cannot_run_right_is_refused(
    checker: Checker, text: str, line: int, code: str, words: list[str]
) -> None:
    refusing = [diagnostic for diagnostic in await check(checker, text) if diagnostic.refuses]
    assert [(diagnostic.line, diagnostic.code) for diagnostic in refusing] == [(line, code)]
    assert all(word in refusing[0].message for word in words)
    assert refusing[0].hint


async def test_hint_of_a_wrong_argument_is_the_signature(checker: Checker) -> None:
    (diagnostic,) = await check(checker, "await echo.say(txt='a')")
    assert diagnostic.hint == LIBRARY.functions["echo.say"].signature


async def test_script_of_a_newer_python_is_checked(checker: Checker) -> None:
    text = 'r = await github.get_issue()\nf"{r["title"]}"\nawait echo.say(text=1, txt=f"{r["title"]}")'
    uses = (LibraryUse("github", "get_issue", 1), LibraryUse("echo", "say", 3))
    found = await checker.check(Prepared(text, frozenset({"github", "echo"}), uses), snapshot(LIBRARY))
    assert [(diagnostic.line, diagnostic.refuses) for diagnostic in found] == [(3, True), (3, True)]


async def test_every_mistake_is_told_at_once(checker: Checker) -> None:
    found = await check(
        checker, "await echo.say()\nawait echo.shout(text=2)\nawait github.list_issues(repo='a', x=1)"
    )
    assert [diagnostic.line for diagnostic in found] == [1, 2, 3]


# What only may be wrong: results are lenient, and types that ty infers may be beliefs.
WARNED = [
    ("r = await github.list_issues(repo='a')\nr['itms']", "unknown_field"),
    ("r = await github.list_issues(repo='a')\nr['items'][0]['nme']", "unknown_field"),
    ("r = await github.list_issues(repo='a')\nf\"{r['totl']}\"", "unknown_field"),
    ("r = await github.list_issues(repo='a')\nawait echo.say(text=r['items'][0]['number'])", "invalid_arguments"),
    ("r = await github.list_issues(repo='a')\nawait echo.say(text=r['items'])", "invalid_arguments"),
    ("r = await github.get_issue()\nawait echo.say(text=r)", "invalid_arguments"),
    ("def number() -> int:\n    return 'a'\nawait echo.say(text=number())", "invalid_arguments"),
    ("async def g(x: int):\n    return await echo.say(text=x)\nawait g('a')", "invalid_arguments"),
    ("try:\n    await echo.say()\nexcept ToolError as e:\n    print(e)", "invalid_arguments"),
    ("try:\n    await echo.say(text=1)\nexcept Exception:\n    pass", "invalid_arguments"),
    ("import contextlib\nwith contextlib.suppress(Exception):\n    await echo.say(text=1)", "invalid_arguments"),
    ("import asyncio\nawait asyncio.gather(echo.say(text=1), return_exceptions=True)", "invalid_arguments"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code"), WARNED)
async def test_what_only_may_be_wrong_is_a_warning(checker: Checker, text: str, code: str) -> None:
    found = await check(checker, text)
    assert [(diagnostic.code, diagnostic.refuses) for diagnostic in found] == [(code, False)]


# Right as far as the library is concerned; much of it a type checker dislikes.
QUIET = [
    "await github.list_issues(repo='a')",
    "await github.list_issues(repo='a', state='open', labels=['x'], limit=3, class_='c', target=1)",
    "await github.list_issues(repo='a', limit=3.0, ratio=1)",
    "await github.list_issues(repo='a', state=None, since=None, labels=None)",
    "await github.list_issues(repo='a', labels=())",
    "await github.list_issues(repo='a', filter={'by': 'x'}, more={'a': 'b', 'unknown': 1})",
    "k = {'repo': 'a', 'limit': 3}\nawait github.list_issues(**k)",
    "await github.list_issues(**{'repo': 'a', 'class': 'c'})",
    "args = []\nawait github.list_issues(*args, repo='a')",
    "await github.get_issue(anything=1, other='x')",
    "await github.list_issues(repo=str(5), labels=sorted({'a'}), limit=len('abc'))",
    "state: str = 'open'\nawait github.list_issues(repo='a', state=state)",
    "for state in ('open', 'closed'):\n    await github.list_issues(repo='a', state=state)",
    "x = None\ndef f():\n    global x\n    x = 'a'\nf()\nawait github.list_issues(repo=x)",
    "x = 5\nexec('x = str(x)')\nawait echo.say(text=x)",
    "x = 5\nglobals()['x'] = 'a'\nawait echo.say(text=x)",
    "await echo.say(text=x)\nx = 5",
    "if earlier:\n    x = 5\nawait echo.say(text=x)",
    "r = await github.list_issues(repo='a')\nr['items'][0]['title'], r.get('anything'), r['total']",
    "r = await github.list_issues(repo='a')\nr['new'] = 1\ndel r['new']",
    "r = await github.list_issues(repo='a')\nawait echo.say(text=r['items'][0]['body'])",
    "r = await github.list_issues(repo='a')\nif isinstance(r, list):\n    print(r[0])\nelse:\n    print(r['items'])",
    "r = await echo.say(text='a')\nr['x'], r.y, r + 1, r()",
    "calls = [echo.say(text=x) for x in 'ab']\nimport asyncio\nawait asyncio.gather(*calls)",
    "c = echo.say(text='a')\nawait c",
    "import asyncio\nasync with asyncio.TaskGroup() as tg:\n    t = tg.create_task(echo.say(text='a'))\nt.result().x",
    "def start(x):\n    return echo.say(text=x)\nawait start('a')",
    "await echo.say(text='a')\nreturn 5\nprint(1)",
    "if 1:\n    return await echo.say(text='a')",
    "await echo.say(text='a')\nx = 1\nx.foo\nx + 'a'\nlen(5)\nundefined\nimport nothing.at.all\ny: int = 'a'",
    "await echo.say(text='a')\nclass A:\n    def f(self, x: int) -> str: return x\nA().f('x').foo",
    "github.get_issue\nfrom typing import TypedDict\nclass Issue(TypedDict): a: int\ni: Issue = {}\ni['b'], i.number",
    "try:\n    await echo.say(text='a')\nexcept ToolError as error:\n    print(error.code, error.hint)",
    "import portal\nportal.emit({'type': 'text', 'text': 'a'})\nawait echo.say(text='a')",
    "class echo:\n    @staticmethod\n    async def say(): return github\nawait echo.say()",
    "def f(github): return github.list_issues()\nf(1)",
    "try:\n    github.list_issues.nothing, github.nothing\nexcept AttributeError:\n    await echo.say(text='a')",
    "github.list_issues.__name__, github.__doc__, dir(tools)",
    "from functools import partial\nawait partial(echo.say, text='a')()",
    "for call in (echo.say, echo.shout):\n    await call(text='a')",
    "match await github.get_issue():\n    case {'number': n, **rest}:\n        print(n, rest)",
    "r = await github.get_issue()\ntry:\n    r.number\nexcept AttributeError:\n    r['number']",
]


@pytest.mark.parametrize("text", QUIET)
async def test_what_would_run_right_is_left_in_peace(checker: Checker, text: str) -> None:
    assert [told for told in await check(checker, text) if told.refuses or told.code != "unknown_field"] == []

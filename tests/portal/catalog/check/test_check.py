"""The check refuses scripts that cannot run correctly, and never those that can."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from portal.catalog.check.checker import Checker, open_checker
from portal.catalog.check.diagnostics import Diagnostic
from tests.portal.catalog.check.small_library import library, prepared, snapshot

Row: TypeAlias = tuple[str, int, str]
"""A script, the line that is told, and what went wrong with the nearest right thing, wherever the answer says them."""

UNKNOWN: list[Row] = [
    ("await wether.forecast(city='x')", 1, "wether weather.forecast"),
    ("await slack.post_message(channel='x', text='y')", 1, 'slack query="slack post message"'),
    ("from tools import wether\nawait wether.forecast(city='x')", 1, "wether weather"),
    ("rows = [1]\nnp.array(rows).mean()", 2, "np docs_search"),
    ("await github.getIssue(number=1)", 1, "getIssue github.get_issue number:"),
    ("from github import list_issue as l\nawait l(repo='a')", 1, "list_issue github.list_issues"),
    ("gh = github\nawait gh.list_isues(repo='a')", 2, "list_isues github.list_issues"),
    ("class A:\n    async def go(self):\n        return await weather.forcast(city='x')\nawait A().go()", 3, "forcast"),
    ("from tools.github import Issue, get_issue", 1, "'Issue' github.get_issue"),
    ("try:\n    x = 1\nfinally:\n    await echo.nope()", 4, "nope"),
    ("json.dumps([])", 1, "json import"),
    ("await call_tool('mcp__github__get_issue', {})", 1, "call_tool github.get_issue(number: int)"),
    ("await mcp.call_tool(server='x', name='github_get_issue')", 1, "call_tool github.get_issue(number: int)"),
    ("await mcp__github__get_isue(number=1)", 1, "get_isue github.get_issue"),
    ("await github_get_issue(number=1)", 1, "github_get_issue github.get_issue(number: int)"),
]  # fmt: skip

ARGUMENTS: list[Row] = [
    ("start = github.list_issues\nawait start()", 2, "github.list_issues repo"),
    ("await github.create_issue(issue={'priority': 'low'})", 1, "issue title"),
    ("await github.create_issue(issue={'title': 'a', 'prio': 'low'})", 1, "prio priority"),
    ("who = 'a'\nawait github.list_issues(repo=who, assignee=who)", 2, "assignee"),
    ("def start(x):\n    return echo.say(txt=x)\nawait start('a')", 2, "txt text"),
    ("state = 'opne'\nawait github.list_issues(repo='a', state=state)", 2, "opne open"),
    ("await github.list_issues(repo='a', limit=2.5)", 1, "limit 2.5 int"),
    ("await github.list_issues(repo='a', labels=['bug', None])", 1, "labels[1] None"),
    ("await weather.forecast(city='x', days=30)", 1, "days 30 7"),
    ("x = 5.5\nawait echo.say(text=x)", 2, "text float str"),
    ("rows = [{}]\nfor row in rows:\n    await echo.say(text=row)", 3, "text dict str"),
    ("from __future__ import annotations\n'ß'; await echo.say(text=['a'])", 2, "text list"),
    ("async with asyncio.TaskGroup() as tg:\n    t = tg.create_task(echo.say(txt=1))\nt.result()", 2, "txt text"),
    ("ask = lambda n: echo.say(txt=n)\nawait ask(1)", 1, "txt text"),
    ("class A:\n    def __init__(self, n):\n        self.r = echo.say(txt=n)\nA(1)", 3, "txt text"),
    ("weather: dict = await weather.forecast(town='x')", 1, "town city"),
]  # fmt: skip

FIELDS: list[Row] = [
    ("r = await github.list_issues(repo='a')\nr.rows", 2, 'rows ["rows"]'),
    ("r = await github.list_issues(repo='a')\nr.content[0].text", 2, "content itself returns {items: list[{"),
    ("r = await echo.shout(text='x')\nr.content[0].text", 2, 'Write r["text"].'),
    ("r = await echo.shout(text='x')\nr.text.title()", 2, 'Write ["text"].'),
    ("r = await echo.odd(text='x')\nr.content", 2, "itself"),
    ("(await weather.forecast(city='x')).isError", 1, "ToolError"),
    ("github.get_issue(number=1).number", 1, '["number"]'),
    ("rs = await asyncio.gather(*[github.get_issue(number=n) for n in [1, 2]])\n[r.body for r in rs]", 2, '["body"]'),
    ("if (r := await github.get_issue(number=1)):\n    print(r.body)", 2, '["body"]'),
]  # fmt: skip

AWAITS: list[Row] = [
    ("f = lambda: github.get_issue(number=1)['number']\nf()", 1, "github.get_issue async"),
    (
        "def f():\n    c = github.get_issue(number=1)\n    for x in c: print(x)\nf()",
        2,
        "github.get_issue async",
    ),
]

REFUSED = [
    *((*row, "unknown_function") for row in UNKNOWN),
    *((*row, "invalid_arguments") for row in ARGUMENTS),
    *((*row, "unknown_field") for row in FIELDS),
    *((*row, "not_awaited") for row in AWAITS),
    ("await github.get_issue", 1, "github.get_issue(...)", "not_called"),
    ("github(repo='a')", 1, "github namespace", "not_a_function"),
    ("await github.delete_repo(repo='a')", 1, "github.delete_* operator", "not_granted"),
    (
        "from tools.github import delete_repo\nawait delete_repo(repo='a')",
        1,
        "github.delete_*",
        "not_granted",
    ),
    (
        "from datetime import datetime\nr = await github.get_issue(number=1)\n[r, datetime.now(timezone.utc)]",
        3,
        "timezone session",
        "not_defined",
    ),
    ("r = await github.get_issue(number=1)\nCounter(r['labels'])", 2, "Counter session", "not_defined"),
    ("await offline.anything(a=1)", 1, "offline down", "upstream_unavailable"),
]

TOLD: list[tuple[str, int, str, str]] = [
    ("r = await github.list_issues(repo='a')\nawait echo.say(text=r['items'])", 2, "text list", "invalid_arguments"),
    ("r = await github.get_issue(number=1)\nawait echo.say(text=r)", 2, "text Issue str", "invalid_arguments"),
    ("r = await github.list_issues(repo='a')\nr['itms']", 2, "itms items", "unknown_field"),
    ("try:\n    await echo.say()\nexcept ToolError as e:\n    print(e)", 2, "text", "invalid_arguments"),
    ("import contextlib\nwith contextlib.suppress():\n    await echo.say(text=[])", 3, "text", "invalid_arguments"),
    ("async def unused():\n    return await echo.nope()\n5", 2, "nope", "unknown_function"),
    ("r = await github.list_issues(repo='a')\nfor x in r: print(x)", 2, "keys {items: list[{", "keys_only"),
    ("'crash' in await github.list_issues(repo='a')", 1, "keys {items:", "keys_only"),
    ("r = await github.list_issues(repo='a')\nr.get('rows', [])", 2, "'rows' {items:", "keys_only"),
    ("try:\n    r = await slack.post(x=1)\nexcept NameError:\n    r = 5", 2, "slack", "unknown_function"),
]  # fmt: skip
"""Not a reason to refuse: a result may differ from its declared type, and code in a `try` may fail."""

LIBRARY = library()
RIGHT = (Path(__file__).parent / "right_scripts.txt").read_text("utf-8").removesuffix("\n").split("\n%%\n")


@pytest.fixture(scope="module")
async def checker(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Checker]:
    folder: Path = tmp_path_factory.mktemp("stubs")
    async with open_checker(folder) as opened:
        await opened.update(LIBRARY, opened.write(LIBRARY))
        yield opened


async def check(checker: Checker, text: str, *before: str) -> Sequence[Diagnostic]:
    return await checker.check(prepared(text, LIBRARY, *before), snapshot(LIBRARY))


async def refusals(checker: Checker, text: str, *before: str) -> list[Diagnostic]:
    return [each for each in await check(checker, text, *before) if each.refuses]


@pytest.mark.parametrize(("text", "line", "words", "code"), REFUSED, ids=range(len(REFUSED)))
async def test_wrong_script_is_refused_with_the_remedy(
    checker: Checker, text: str, line: int, words: str, code: str
) -> None:
    refusing = await refusals(checker, text)
    assert [(each.line, each.code) for each in refusing] == [(line, code)]
    told = f"{refusing[0].message} {refusing[0].hint}"
    assert [word for word in words.split() if word not in told] == []
    assert refusing[0].hint != ""
    assert len(refusing[0].message) < 300


@pytest.mark.parametrize(("text", "line", "words", "code"), TOLD, ids=range(len(TOLD)))
async def test_what_may_be_right_is_a_notice(
    checker: Checker, text: str, line: int, words: str, code: str
) -> None:
    (found,) = await check(checker, text)
    assert (found.line, found.code, found.refuses) == (line, code, False)
    assert [word for word in words.split() if word not in f"{found.message} {found.hint}"] == []


async def test_no_script_that_runs_right_is_refused(checker: Checker) -> None:
    assert {text: found for text in RIGHT if (found := await refusals(checker, text))} == {}


async def test_every_mistake_is_told_at_once(checker: Checker) -> None:
    text = "await echo.say()\nawait echo.whisper()\nawait wether.forecast()\nawait github.list_issues(repo='a', x=1)"
    assert [each.line for each in await refusals(checker, text)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("slack = {'a': 1}", "slack.get('a')"),
        ("github = 5", "github.bit_length()"),
        ("import pandas as pd", "pd.DataFrame()"),
        ("def get_issue(n): return n", "get_issue(1)"),
        ("class A: pass", "A.x = 5\nA.x"),
    ],
)
async def test_names_of_earlier_runs_of_a_session_are_known(checker: Checker, before: str, text: str) -> None:
    assert await refusals(checker, text, before) == []


async def test_what_will_be_repaired_is_refused_only_where_nothing_is(
    tmp_path: Path, checker: Checker
) -> None:
    label = "label = chr(97)\nawait github.list_issues(repo='a', labels=label, limit=label)"
    for text in ("await github.list_issues('a', 'open')", "await echo.say(text=3)", label):
        assert await refusals(checker, text) == []
    async with open_checker(tmp_path, repairs=False) as strict:
        await strict.update(LIBRARY, strict.write(LIBRARY))
        found = await refusals(strict, "await github.list_issues(repo='a', limit='3')")
        assert [each.code for each in found] == ["invalid_arguments"]

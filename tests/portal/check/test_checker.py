"""What else the check promises: every mistake at once, the signature once, scripts of a newer Python, and sessions."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from manifests.json_value import Json
from portal.check.checker import Checker, open_checker
from portal.check.diagnostic import Diagnostic
from portal.check.session_history import NO_HISTORY, SessionHistory
from portal.library.library import Library
from portal.library.namespace import LibrarySource
from sandbox_runtime.prepared import LibraryUse, Prepared
from tests.portal.check.small_library import LIST_ISSUES, library, prepared, snapshot, stubs, tool

pytestmark = pytest.mark.anyio

LIBRARY = library()


@pytest.fixture(scope="module")
async def checker(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Checker]:
    folder: Path = tmp_path_factory.mktemp("stubs")
    changed = stubs(folder, LIBRARY)
    async with open_checker(folder) as opened:
        await opened.update(LIBRARY, changed)
        yield opened


async def check(checker: Checker, text: str, history: SessionHistory = NO_HISTORY) -> Sequence[Diagnostic]:
    return await checker.check(prepared(text, LIBRARY), snapshot(LIBRARY), history)


async def test_hint_of_a_wrong_argument_is_the_signature(checker: Checker) -> None:
    (diagnostic,) = await check(checker, "await echo.say(txt='a')")
    assert diagnostic.hint == LIBRARY.functions["echo.say"].signature


async def test_script_of_a_newer_python_is_checked(checker: Checker) -> None:
    text = 'r = await github.get_issue()\nf"{r["title"]}"\nawait echo.say(text=[1], txt=f"{r["title"]}")'
    uses = (LibraryUse("github", "get_issue", 1), LibraryUse("echo", "say", 3))
    script = Prepared(text, frozenset({"github", "echo"}), uses)
    found = await checker.check(script, snapshot(LIBRARY))
    assert [(diagnostic.line, diagnostic.refuses) for diagnostic in found] == [(3, True)]


async def test_what_only_the_sandbox_can_read_is_searched_for_absent_functions(checker: Checker) -> None:
    text = "type X[T: = int\nawait echo.whisper()"
    script = Prepared(
        text, frozenset({"echo"}), (LibraryUse("echo", "whisper", 2), LibraryUse("echo", "say", 2))
    )
    found = await checker.check(script, snapshot(LIBRARY))
    assert [(diagnostic.line, diagnostic.code, diagnostic.refuses) for diagnostic in found] == [
        (2, "unknown_function", True)
    ]


UNREAD = [
    ("type X[T: = int\nif 1:\n    await echo.whisper()", 3),
    ("type X[T: = int\nx = 5 or await echo.whisper()", 2),
    ("type X[T: = int\ndef f(): return echo.whisper()", 2),
    ("type X[T: = int\nwhile False: echo.whisper()", 2),
    ("type X[T: = int\nwith suppress(AttributeError): echo.whisper()", 2),
    ("type X[T: = int\nassert True, echo.whisper()", 2),
    ("type X[T: = int\nif x:\n    return 5\nawait echo.whisper()", 4),
    ("type X[T: = int\nsetattr(echo, 'whisper', print)\necho.whisper()", 3),
]


@pytest.mark.parametrize(("text", "line"), UNREAD, ids=range(len(UNREAD)))
async def test_what_only_the_sandbox_can_read_is_refused_only_where_it_must_run(
    checker: Checker, text: str, line: int
) -> None:
    script = Prepared(text, frozenset({"echo"}), (LibraryUse("echo", "whisper", line),))
    found = await checker.check(script, snapshot(LIBRARY))
    assert [(diagnostic.line, diagnostic.refuses) for diagnostic in found] == [(line, False)]


async def test_every_mistake_is_told_at_once(checker: Checker) -> None:
    lines = [
        "await echo.say()",
        "await echo.whisper()",
        "await wether.forecast()",
        "await github.list_issues(repo='a', x=1)",
    ]
    found = await check(checker, "\n".join(lines))
    assert [(diagnostic.line, diagnostic.refuses) for diagnostic in found] == [
        (at, True) for at in (1, 2, 3, 4)
    ]


async def test_absent_function_is_told_once_at_its_first_certain_place(checker: Checker) -> None:
    text = "if False:\n    await echo.whisper()\nawait echo.whisper()\nawait echo.whisper()"
    found = await check(checker, text)
    assert [(diagnostic.line, diagnostic.refuses) for diagnostic in found] == [(3, True)]


# What a script that ran before in the session may have done, and what is right because of it.
RIGHT_AFTER = [
    ("slack = {'a': 1}", "slack.get('a')"),
    ("def connect():\n    global slack\n    slack = {}", "connect()\nslack.get('a')"),
    ("def fix():\n    global x\n    x = 'a'", "x = [5]\nfix()\nawait echo.say(text=x)"),
    ("def len(x):\n    return 'a'", "await github.list_issues(repo='a', labels=[len(1)], limit=3)"),
    ("async def safe(c):\n    try: return await c\n    except ToolError: pass", "await safe(echo.say(txt=1))"),
    ("async def fake(**k):\n    return 5\necho.say = fake", "await echo.say(txt=1)"),
    ("def parse(r):\n    r['x'] = object()", "r = await github.get_issue()\nparse(r)\nr['x'].y"),
    ("import pandas as pd", "pd.DataFrame()"),
    ("exec('pd = 5')", "pd.bit_length()"),
    ("def swap():\n    global github\n    github = fake", "swap()\nawait github.nonsense()"),
    ("len = lambda x: 99", "if len('ab') < 50:\n    await echo.say(txt=1)"),
    ("dict = lambda **k: {'text': 'a'}", "await echo.say(**dict(txt=1))"),
    ("range = lambda n: []", "for x in range(3):\n    await echo.say(txt=1)"),
    ("asyncio = Gatherer()", "await asyncio.gather(echo.say(txt=1))"),
    ("open = quiet", "with open('x'):\n    await echo.say(txt=1)"),
    ("KeyError = Exception", "try:\n    await echo.say(txt=1)\nexcept KeyError:\n    pass"),
    ("import sys\ndef stop():\n    sys.exit()", "stop()\nawait echo.say(txt=1)"),
    ("def stop():\n    raise SystemExit", "stop()\nawait echo.say(txt=1)"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "text"), RIGHT_AFTER)
async def test_what_a_session_left_is_reckoned_with(checker: Checker, before: str, text: str) -> None:
    history = NO_HISTORY.after(before, LIBRARY.namespaces)
    assert not any(diagnostic.refuses for diagnostic in await check(checker, text, history))


WRONG_AFTER = [
    ("rows = [1]", "wether.forecast(city=rows[0])"),
    ("rows = [1]", "for row in rows:\n    await echo.say(txt=row)"),
    ("r = await github.get_issue()", "await echo.whisper(text=r['title'])"),
    ("wether = 5\ndel wether", "await wheather.forecast()"),
    ("import asyncio, json\nfrom tools import echo", "await asyncio.gather(echo.say(txt=json.dumps(1)))"),
    ("def f(list, echo):\n    return list", "await echo.say(txt=list('a'))"),
]


@pytest.mark.parametrize(("before", "text"), WRONG_AFTER)
async def test_what_is_wrong_in_any_session_is_refused(checker: Checker, before: str, text: str) -> None:
    history = NO_HISTORY.after(before, LIBRARY.namespaces)
    assert any(diagnostic.refuses for diagnostic in await check(checker, text, history))


async def test_what_would_be_repaired_is_refused_where_nothing_is(tmp_path: Path) -> None:
    changed = stubs(tmp_path, LIBRARY)
    texts = ["repo=5, labels='a', limit=f'{n}'", "params={'repo': 'a'}"]
    text = "\n".join(["n = 1", *(f"await github.list_issues({each})" for each in texts)])
    async with open_checker(tmp_path, repairs=False) as strict:
        await strict.update(LIBRARY, changed)
        found = await check(strict, text)
    assert [(diagnostic.line, diagnostic.refuses) for diagnostic in found] == [(2, True), (3, True)]
    async with open_checker(tmp_path, repairs=True) as mending:
        await mending.update(LIBRARY, changed)
        assert await check(mending, text) == []


def issues_of(*fields: str) -> Json:
    return {"title": "Issue", "type": "object", "properties": {name: {"type": "string"} for name in fields}}


@pytest.mark.parametrize(
    ("of_github", "of_jira", "hint"),
    [
        (("title",), ("summary", "zzz"), "It declares 'title'."),  # jira's has the key, so it is not meant
        (("title",), ("title",), "It declares 'title'."),
        (("title",), ("summary",), ""),  # it may be either
    ],
)
async def test_type_of_another_namespace_tells_nothing_of_this_one(
    tmp_path: Path, of_github: tuple[str, ...], of_jira: tuple[str, ...], hint: str
) -> None:
    sources = [
        LibrarySource(name, name, "", [tool("get_issue", {"type": "object"}, issues_of(*fields))])
        for name, fields in (("github", of_github), ("jira", of_jira))
    ]
    compiled = Library.compile(sources)
    text = "issue = await github.get_issue()\nprint(issue['zzz'], await jira.get_issue())"
    async with open_checker(tmp_path) as checker:
        await checker.update(compiled, stubs(tmp_path, compiled))
        (found,) = await checker.check(prepared(text, compiled), snapshot(compiled))
    assert (found.line, found.code, found.hint) == (2, "unknown_field", hint)


INSERT: Json = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "additionalProperties": True,
}
PUT: Json = {
    "type": "object",
    "anyOf": [
        {
            "properties": {
                "kind": {"const": "text"},
                "value": {"type": "string"},
                "note": {"type": "string"},
            },
            "required": ["kind", "value", "note"],
            "additionalProperties": False,
        },
        {
            "properties": {"kind": {"const": "number"}, "value": {"type": "number"}},
            "required": ["value"],
        },
    ],
}
PART: Json = {"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": LIST_ISSUES}}


@pytest.mark.parametrize("repairs", [True, False])
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "n = input()\nawait echo.insert(data={'id': 'abc', 'name': n})",
            [],
        ),  # `data` is a name like another
        ("n = input()\nawait echo.insert(data={'name': n}, id='abc')", [2]),
        ("n = {'note': 'n'}\nprint(n)\nawait echo.put(kind='text', value='hello', **n)", []),
        ("n = input()\nawait echo.put(kind='text', value='hello', note=n)", []),
        ("await echo.put(kind='text', value='hello', note='n')", []),
        ("await echo.put(kind='text', value='hello')", [1]),
        ("await echo.put(kind='number', value=[1])", [1]),
        ("n = input()\nawait echo.part(repo=n, limit='x')", [2]),
    ],
)
async def test_only_what_the_broker_would_refuse_is_refused(
    tmp_path: Path, repairs: bool, text: str, lines: list[int]
) -> None:
    tools = [tool("insert", INSERT), tool("put", PUT), tool("part", PART)]
    compiled = Library.compile([LibrarySource("echo", "echo", "", tools)])
    async with open_checker(tmp_path, repairs=repairs) as checker:
        await checker.update(compiled, stubs(tmp_path, compiled))
        found = await checker.check(prepared(text, compiled), snapshot(compiled))
    assert [each.line for each in found if each.refuses] == lines

"""The check of JavaScript, by facts alone and by TypeScript's compiler: it refuses no script that can run correctly."""

import re
import shutil
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from manifests.grants import Limits
from manifests.kernels import JAVASCRIPT, PYTHON
from portal.catalog.check.checker import Checker, open_checker
from portal.catalog.check.diagnostics import Diagnostic
from portal.catalog.check.typescript_server import find_typescript
from portal.library.library import Library, LibrarySource
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.result import Prepared
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from tests.portal.catalog.check.small_library import ISSUE, TEXT, library, snapshot, tool
from tests.portal.catalog.check.small_library import prepared as prepared_python

needs_compiler = pytest.mark.skipif(
    find_typescript() is None, reason="the extra `typescript` is not installed"
)

LIBRARY = library()
RIGHT = (Path(__file__).parent / "right_javascript.txt").read_text("utf-8").removesuffix("\n").split("\n%%\n")

Row: TypeAlias = tuple[str, int, str, str]
"""A script, the line that is told, and what went wrong with the nearest right thing, in words of the answer."""

BY_FACTS: list[Row] = [
    ("await github.list_issues({repo: 'a', state: 'opne'})", 1, '"opne" "open"', "invalid_arguments"),
    ("await github.list_issues({repo: 'a', assigne: 'b'})",
     1, '"assigne" "since" github.list_issues({repo:', "invalid_arguments"),
    ("1\nawait github.list_isues({repo: 'a'})", 2, "list_isues github.list_issues({repo: string", "unknown_function"),
    ("await wether.forecast({city: 'x'})", 1, "wether weather.forecast({city: string", "unknown_function"),
    ("await github.create_issue({issue: {priority: null}})", 1, 'issue lacks "title"', "invalid_arguments"),
    ("await github.list_issues({repo: {}})", 1, "repo an empty object a string", "invalid_arguments"),
    ("await github.create_issue({issue: {title: 'a', assignees: [{login: true}]}})",
     1, "issue.assignees[0].login true", "invalid_arguments"),
    ("const f = () => github.get_issue({number: 1}).title\nf()", 1, "github.get_issue await", "not_awaited"),
    ("await github.get_issue", 1, "github.get_issue({...})", "not_called"),
    ("await call_tool('mcp__github__get_issue', {})", 1, "github.get_issue({number: number})", "unknown_function"),
]  # fmt: skip

BY_TYPES: list[Row] = [
    BY_FACTS[0],  # both find it, and it is told once
    ("const x = [1]\nawait echo.say({text: x})", 2, "text number[] string", "invalid_arguments"),
    ("const state = 'opne'\nawait github.list_issues({repo: 'a', state})",
     2, 'state "opne" "open"', "invalid_arguments"),
    ("'é😀'; const text = null; await echo.say({\n  text})", 2, "text null string", "invalid_arguments"),
    ("const r = await github.get_issue({number: 1})\nr.tittle", 2, "'tittle' 'title' Issue", "unknown_field"),
    ("const {items} = await github.list_issues({repo: 'a'})\nitems.map(i => i['nmber'])",
     2, "'nmber' 'number'", "unknown_field"),
    ("class A { async get() { return (await github.list_issues({repo: 'a'})) } }\nnew A().get()['items']",
     2, "get(...) await", "not_awaited"),
    ("class A { async all() { return [await echo.say({text: 'a'})] } }\nconst l = new A().all()\n;[...l]",
     3, "l await", "not_awaited"),
    ("class A { async n() { return 5 } }\nawait github.get_issue({number: new A().n()})",
     2, "number promise await", "not_awaited"),
]  # fmt: skip

TOLD: list[Row] = [
    ("const r = await github.get_issue({number: 1})\nawait echo.say({text: r})",
     2, "text Issue string", "invalid_arguments"),
    ("const r = await github.list_issues({repo: 'a'})\nr.items[0].html_url", 2, "'html_url' Issue", "unknown_field"),
    ("const x = [1]\ntry { await echo.say({text: x}) } catch {}", 2, "text number[]", "invalid_arguments"),
    ("class A { async n() { return 5 } }\ngithub && [new A().n()].map(p => p.length)", 2, "p awaited", "not_awaited"),
]  # fmt: skip
"""Not a reason to refuse: a result may differ from its declared type, and code in a `try` may fail."""

NAMES = tuple(snapshot(LIBRARY).namespaces)


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    async with open_sandbox(workers=1, kernel=KERNELS[JAVASCRIPT], progress=print) as opened:
        yield opened


@pytest.fixture(scope="module")
async def by_facts(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Checker]:
    async with open_checker(tmp_path_factory.mktemp("stubs")) as opened:
        yield opened


@pytest.fixture(scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stubs")


@pytest.fixture(scope="module")
async def by_types(folder: Path, anyio_backend: str) -> AsyncIterator[Checker]:
    async with open_checker(folder, kernels=[JAVASCRIPT, PYTHON]) as opened:
        await opened.update(LIBRARY, opened.write(LIBRARY))
        yield opened


async def prepared(sandbox: Sandbox, text: str) -> Prepared:
    async with sandbox.run(Limits(), str) as run:
        return await run.prepare(text, NAMES)


async def check(
    checker: Checker, sandbox: Sandbox, text: str, of: Library = LIBRARY, caller: str = ""
) -> Sequence[Diagnostic]:
    script = await prepared(sandbox, text)
    assert script.error is None
    return await checker.check(script, snapshot(of), caller, JAVASCRIPT)


def assert_told(found: Diagnostic, line: int, words: str, code: str) -> None:
    told = f"{found.message} {found.hint}"
    assert (found.line, found.code) == (line, code)
    assert [word for word in words.split() if word not in told] == []


@pytest.mark.parametrize(("text", "line", "words", "code"), BY_FACTS, ids=range(len(BY_FACTS)))
async def test_facts_refuse_without_a_compiler_in_the_words_of_the_language(
    by_facts: Checker, sandbox: Sandbox, text: str, line: int, words: str, code: str
) -> None:
    (found,) = await check(by_facts, sandbox, text)
    assert_told(found, line, words, code)
    assert found.refuses
    assert re.findall(r"None|\bdict|\bstr\b|->|import |asyncio", f"{found.message} {found.hint}") == []


@needs_compiler
@pytest.mark.parametrize(("text", "line", "words", "code"), BY_TYPES, ids=range(len(BY_TYPES)))
async def test_wrong_script_is_refused_with_line_and_nearest_name(
    by_types: Checker, sandbox: Sandbox, text: str, line: int, words: str, code: str
) -> None:
    (found,) = [each for each in await check(by_types, sandbox, text) if each.refuses]
    assert_told(found, line, words, code)
    assert found.hint


@needs_compiler
@pytest.mark.parametrize(("text", "line", "words", "code"), TOLD, ids=range(len(TOLD)))
async def test_what_may_be_right_is_a_notice(
    by_types: Checker, sandbox: Sandbox, text: str, line: int, words: str, code: str
) -> None:
    (found,) = await check(by_types, sandbox, text)
    assert_told(found, line, words, code)
    assert not found.refuses


@needs_compiler
async def test_a_field_that_no_earlier_result_had_is_a_notice(by_types: Checker, sandbox: Sandbox) -> None:
    seen = LibrarySource("github", "github", "", (tool("find", TEXT),), observed={"find": ISSUE})
    of = Library.compile([seen])
    await by_types.update(of, by_types.write(of))
    text = "const r = await github.find({text: 'x'})\nr.tittle"
    (found,) = await check(by_types, sandbox, text, of)
    await by_types.update(LIBRARY, by_types.write(LIBRARY))
    assert_told(found, 2, "'tittle' 'title'", "unknown_field")
    assert not found.refuses


@needs_compiler
async def test_no_script_that_runs_right_is_refused(by_types: Checker, sandbox: Sandbox) -> None:
    found = {text: await check(by_types, sandbox, text) for text in RIGHT}
    assert {text: each for text, each in found.items() if any(row.refuses for row in each)} == {}
    assert [each for rows in found.values() for each in rows if each.code == "unchecked"] == []


@needs_compiler
async def test_each_language_has_its_own_answer_and_its_own_stubs(
    by_types: Checker, sandbox: Sandbox, folder: Path
) -> None:
    text = "r = await github.get_issue(number=1)\nr['nme']"
    python = await by_types.check(prepared_python(text, LIBRARY), snapshot(LIBRARY))
    assert [each.code for each in python] == ["unknown_field"]
    both = Prepared("github.get_issue", frozenset({"github"}))
    assert await by_types.check(both, snapshot(LIBRARY)) == await by_types.check(
        both, snapshot(LIBRARY), "", JAVASCRIPT
    )
    assert len(by_types._remembered) >= 2
    larger = library(tool("find", TEXT, {"type": "object", "properties": {"number": {"type": "integer"}}}))
    await by_types.update(larger, by_types.write(larger))
    text = "const r = await github.find({text: 'x'})\nr.nmber"
    assert any(each.refuses for each in await check(by_types, sandbox, text, larger))
    await by_types.update(LIBRARY, by_types.write(LIBRARY))
    assert [each.code for each in await check(by_types, sandbox, text)] == ["unknown_function"]
    shutil.rmtree(folder)
    for each in by_types._all:
        await each.end()
    text = "const r = await github.get_issue({number: 1})\nr.nme"
    assert any(each.refuses for each in await check(by_types, sandbox, text))
    text = "r = await github.get_issue(number=1)\nr['nme'], 1"
    python = await by_types.check(prepared_python(text, LIBRARY), snapshot(LIBRARY))
    assert [each.code for each in python] == ["unknown_field"]


def test_only_a_native_compiler_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    monkeypatch.setattr("portal.catalog.check.typescript_server.find_spec", lambda _: None)
    modules = tmp_path / "lib" / "node_modules"
    launcher = program(modules / "typescript" / "bin" / "tsc", "#!/usr/bin/env node\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tsc").symlink_to(launcher)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_typescript() is None
    native = program(modules / "@typescript" / "typescript-linux-x64" / "lib" / "tsc", "\x7fELF")
    assert find_typescript() == native
    monkeypatch.setenv("PATH", str(native.parent))
    assert find_typescript() == native
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert find_typescript() is None

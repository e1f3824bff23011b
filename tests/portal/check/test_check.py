"""What the check says of scripts: those that cannot run right are refused, those that run right never are."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from portal.catalog.check.checker import Checker, Diagnostic, open_checker
from tests.portal.check.small_library import library, prepared, snapshot, stubs
from tests.portal.check.wrong_scripts import REFUSED, TOLD

pytestmark = pytest.mark.anyio

LIBRARY = library()
RIGHT = (Path(__file__).parent / "right_scripts.txt").read_text("utf-8").removesuffix("\n").split("\n%%\n")


@pytest.fixture(scope="module")
async def checker(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Checker]:
    folder: Path = tmp_path_factory.mktemp("stubs")
    changed = stubs(folder, LIBRARY)
    async with open_checker(folder) as opened:
        await opened.update(LIBRARY, changed)
        yield opened


async def check(checker: Checker, text: str, *before: str) -> Sequence[Diagnostic]:
    return await checker.check(prepared(text, LIBRARY, *before), snapshot(LIBRARY))


async def refusals(checker: Checker, text: str, *before: str) -> list[Diagnostic]:
    return [each for each in await check(checker, text, *before) if each.refuses]


@pytest.mark.parametrize(("text", "line", "words", "code"), REFUSED, ids=range(len(REFUSED)))
async def test_script_that_cannot_run_right_is_refused_with_the_remedy(
    checker: Checker, text: str, line: int, words: str, code: str
) -> None:
    refusing = await refusals(checker, text)
    assert [(each.line, each.code) for each in refusing] == [(line, code)]
    told = f"{refusing[0].message} {refusing[0].hint}"
    assert [word for word in words.split() if word not in told] == []
    assert refusing[0].hint != ""
    assert len(refusing[0].message) < 300


@pytest.mark.parametrize(("text", "line", "words", "code"), TOLD, ids=range(len(TOLD)))
async def test_what_may_be_right_or_is_caught_is_a_notice(
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
async def test_names_of_earlier_runs_of_the_session_are_known(
    checker: Checker, before: str, text: str
) -> None:
    assert await refusals(checker, text, before) == []


@pytest.mark.parametrize(
    "text",
    [
        "await github.list_issues('a', 'open')",
        "await github.get_issue({'number': 1})",
        "n = 3\nawait echo.say(text=n)",
        "label = chr(97)\nawait github.list_issues(repo='a', labels=label, limit=label)",
    ],
)
async def test_what_will_be_repaired_is_not_refused(checker: Checker, text: str) -> None:
    assert await refusals(checker, text) == []


async def test_what_would_be_repaired_is_refused_where_nothing_is(tmp_path: Path, checker: Checker) -> None:
    text = "await github.list_issues(repo='a', limit='3')"
    assert await refusals(checker, text) == []
    changed = stubs(tmp_path, LIBRARY)
    async with open_checker(tmp_path, repairs=False) as strict:
        await strict.update(LIBRARY, changed)
        assert [each.code for each in await refusals(strict, text)] == ["invalid_arguments"]

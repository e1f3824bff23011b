"""A function of the library, looked at from inside a script."""

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio

SIGNATURE = "(*, count: int = 10) -> list[dict]"


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("import inspect\ninspect.iscoroutinefunction(git.git_log)", True),
        ("repr(git.git_log)", f"<async function git.git_log{SIGNATURE}>"),
        ("git.git_log.__name__, git.git_log.__qualname__", ["git_log", "git.git_log"]),
        ("git.git_log.__module__, callable(git.git_log)", ["git", True]),
        ("git.git_log is git.git_log, len({git.git_log, git.git_show})", [True, 2]),
        ("import functools\nawait functools.partial(git.git_log, count=3)()", {"count": 3}),
        ("class Repository:\n    log = git.git_log\nawait Repository().log(count=3)", {"count": 3}),
    ],
)
async def test_it_tells_what_it_takes(run: Runner, script: str, value: Json) -> None:
    assert await run.value(script) == value


async def test_help_shows_its_signature_and_where_its_documentation_is(run: Runner) -> None:
    result = await run("help(git.git_log)")
    assert result.error is None
    assert SIGNATURE in result.stdout
    assert 'docs_search(query="git.git_log")' in result.stdout


async def test_function_that_is_returned_is_an_error_that_shows_its_signature(run: Runner) -> None:
    result = await run("[git.git_log]")
    assert result.error is not None
    assert result.error.code == "result_not_json"
    assert SIGNATURE in result.error.message

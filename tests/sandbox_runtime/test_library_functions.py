"""A function of the library, looked at from inside a script."""

import pytest

from manifests.grants import Limits
from manifests.json_value import Json
from tests.sandbox_runtime.running import EchoPort, Runner, where

pytestmark = pytest.mark.anyio

SIGNATURE = "(*, count: int = 10) -> list[dict]"


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("import inspect\nstr(inspect.signature(git.git_log))", SIGNATURE),
        ("import inspect\nlist(inspect.signature(git.git_log).parameters)", ["count"]),
        ("import inspect\ninspect.signature(git.git_log).parameters['count'].default", 10),
        ("import inspect\ninspect.signature(git.git_log).bind(count=3).arguments", {"count": 3}),
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


async def test_help_on_a_namespace_shows_its_functions(run: Runner) -> None:
    result = await run("help(git)")
    assert result.error is None
    assert "git_log" in result.stdout and "count: int = 10" in result.stdout


async def test_function_that_is_returned_is_an_error_that_shows_its_signature(run: Runner) -> None:
    result = await run("[git.git_log]")
    assert result.error is not None
    assert result.error.code == "result_not_json"
    assert SIGNATURE in result.error.message


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("async def git.log(*, a: 'str', ...) -> Any", "(*, a: str, **more) -> Any"),
        ("async def git.log() -> None", "() -> None"),
        (
            "async def git.log(*, a: list[str] = ...) -> dict[str, int]",
            "(*, a: list[str] = ...) -> dict[str, int]",
        ),
        ("async def git.log(*, kind: Literal['a', 'b'] = 'a')", "(*, kind: Literal['a', 'b'] = 'a')"),
        ("async def git.log(**arguments: int) -> Any", "(**arguments: int) -> Any"),
        ("(oops", "(**arguments)"),
        ("", "(**arguments)"),
        ("async def git.log(*, a=print('ran')) -> Any", "(*, a=...) -> Any"),
    ],
)
async def test_any_signature_of_the_host_can_be_looked_at(run: Runner, told: str, shown: str) -> None:
    async with run.sandbox.run(Limits(), where) as one:
        await one.prepare("import inspect\nstr(inspect.signature(git.log))", ("git",))
        result = await one.execute({"git": {"log": told}}, EchoPort())
    assert (result.value, result.stdout) == (shown, "")


async def test_function_of_a_namespace_without_a_table_takes_anything(run: Runner) -> None:
    assert await run.value("import inspect\nstr(inspect.signature(files.read))") == "(**arguments)"

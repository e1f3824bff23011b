"""A taken-over interpreter cannot exceed what is plausible: no call passes a limit, and no caller waits for it."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from manifests.grants import Limits
from portal.catalog.check.diagnostics import syntax_diagnostics
from sandbox_runtime.result import Prepared
from sandbox_runtime.sandbox import Session
from tests.portal.catalog.check.small_library import library, prepared, snapshot
from tests.portal.peers import Peer, opened
from tests.sandbox_runtime.running import EchoPort, Runner, where
from tests.security.hostile import INTERPRETER, MOST_SECONDS, RAW_HOST, watched

pytestmark = pytest.mark.anyio

PUT_INTO_THE_HEADER = '\nimport json\njson.dumps = lambda *_, **__: "{}\\n" + values\n'
WAYS_TO_SEND = {
    "block": RAW_HOST + 'SIZE = 9_000_000\nhost.emit(\'{"type": "x", "x": \' + VALUES + \'}\')',
    "value": INTERPRETER + "SIZE = 9_000_000\nvalues = VALUES" + PUT_INTO_THE_HEADER,
    "arguments": RAW_HOST
    + "SIZE = 1_000_000\nanswer = host.exchange('1 git.git_log {\"a\": ' + VALUES + '}', 5000)\n"
    + "['argument_limit' in answer, 'argument_bytes' in answer]",
    "preparation": INTERPRETER
    + "SIZE = 7_000_000\nvalues = VALUES\ninterpreter().prepare = lambda *_: '{\"names\": ' + values + '}'",
}


async def test_calls_of_one_number_neither_pass_parallel_calls_nor_outlive_the_run(run: Runner) -> None:
    port = EchoPort()
    forged = RAW_HOST + "host.exchange('\\n'.join(['1 git.hangs {}'] * 30), 200)"
    result = await run(forged, port=port, limits=Limits(parallel_calls=3))
    await asyncio.sleep(0)
    # None of them ends before the run does.
    assert len(port.calls) == len(port.cancelled) <= 3
    assert result.error is not None


async def test_number_that_was_used_before_is_not_used_again(run: Runner) -> None:
    port = EchoPort()
    forged = RAW_HOST + "host.exchange('1 a.b {}', 500)\nhost.exchange('1 a.b {}', 500)"
    result = await run(forged, port=port)
    assert len(port.calls) == 1
    assert result.error.code == "worker_lost"


@pytest.mark.parametrize("line", ["39", "5"])
async def test_flood_of_cancellations_holds_nobody_up(run: Runner, line: str) -> None:
    calls = "host.exchange('\\n'.join(f'{i} git.hangs {{}}' for i in range(1, 41)), 1)\n"
    flood = f"host.exchange('\\n'.join(['{line}'] * 900_000), 1)"
    async with watched() as delay:
        result = await run(RAW_HOST + calls + flood, limits=Limits(parallel_calls=10))
    assert delay.seconds < MOST_SECONDS
    assert result.error is not None


async def test_flood_of_calls_ends_the_run_and_holds_nobody_up(run: Runner) -> None:
    calls = "'\\n'.join(f'{i} a.b {{}}' for i in range(n + 1, n + 60_001))"
    flood = f"n = 0\nwhile True:\n    host.exchange({calls}, 0)\n    n += 60_000"
    async with watched() as delay:
        result = await run(RAW_HOST + flood)
    assert delay.seconds < MOST_SECONDS
    assert result.error.code == "tool_calls_limit"


async def test_thousands_of_calls_over_the_limit_are_refused_one_by_one(run: Runner) -> None:
    port = EchoPort()
    script = (
        "answers = await asyncio.gather(*[git.git_log(count=i) for i in range(10_000)], return_exceptions=True)\n"
        "[isinstance(a, dict) for a in answers].count(True), {a.code for a in answers if not isinstance(a, dict)}.pop()"
    )
    assert await run.value(script, port=port) == [200, "tool_calls_limit"]
    assert len(port.calls) == 200


@pytest.mark.parametrize("piece", ["[],", "{},", '{"a":[]},', "1e5,", '"",', '",,",', '"\\\\\\\\",'])
@pytest.mark.parametrize("way", ["block", "value", "arguments", "preparation"])
async def test_millions_of_values_are_not_read(run: Runner, session: Session, way: str, piece: str) -> None:
    """They delay no one, either."""
    forged = WAYS_TO_SEND[way].replace("VALUES", f"'[' + {piece!r} * (SIZE // {len(piece)}) + '0]'")
    async with watched() as delay:
        result = await run(forged, session=session)
        if way == "preparation":
            result = await run("1", session=session)
    assert delay.seconds < MOST_SECONDS
    if way == "block":
        assert result.emitted == ()
        assert "result_bytes" in result.notices[0]
    elif way == "value":
        assert result.error.code == "result_limit"
        assert where("result_bytes") in result.error.message
    elif way == "arguments":
        assert result.value == [True, True]
    else:
        assert result.error.code == "syntax_error"


@pytest.mark.parametrize("piece", ["[],", "{},", '{"a":[]},', "1e5,", '"",', '",,",'])
async def test_thousands_of_values_are_read(run: Runner, piece: str) -> None:
    many = json.loads(f"[{piece * 40_000}0]")
    assert await run.value(f"import json\njson.loads('[' + {piece!r} * 40_000 + '0]')") == many
    assert await run.value(
        f"import json\nawait git.git_log(a=json.loads('[' + {piece!r} * 40_000 + '0]'))"
    ) == {"a": many}


FORGED_SOURCE = "import json\nsource = 'x = [' + '[],' * 900_000 + '0]'\n"
FORGED_PREPARATION = (
    "def prepare(self, text, namespaces):\n"
    "    return json.dumps({'source': source, 'names': ['up'], 'uses': uses, 'notices': ['n' * 9000] * 500})\n"
    "interpreter().prepare = prepare"
)


async def prepared_again(run: Runner, session: Session, first: str, second: str) -> Prepared:
    """The second script of a session, as parsed by what the first one left of the interpreter."""
    assert (await run(first, session=session)).error is None
    async with run.sandbox.run(Limits(), where, session) as again:
        return await again.prepare(second, ())


async def test_source_that_is_not_the_script_is_not_believed(run: Runner, session: Session) -> None:
    forged = INTERPRETER + FORGED_SOURCE + "uses = [['up', 'f', 1, 1, None]]\n" + FORGED_PREPARATION
    prepared = await prepared_again(run, session, forged, "1")
    assert prepared.source == "1"
    assert len(prepared.notices) == 100


@pytest.mark.parametrize("line", ["10 ** 4000", "-1", "1 << 22"])
async def test_lines_that_no_script_has_are_not_believed(run: Runner, session: Session, line: str) -> None:
    uses = f"uses = [['up', 'f', 1, 1, None], ['up', 'f', {line}, 1, None]]\nsource = None\n"
    forged = INTERPRETER + "import json\n" + uses + FORGED_PREPARATION
    prepared = await prepared_again(run, session, forged, "1")
    assert not prepared.uses
    assert prepared.error is not None


async def test_forged_source_holds_nobody_up(tmp_path: Path, anyio_backend: str) -> None:
    uses = "uses = [['up', 'echo', 1, 1, {'a': n}] for n in range(9_000)]\n"
    forged = INTERPRETER + FORGED_SOURCE + uses + FORGED_PREPARATION
    async with opened(tmp_path, {"up": Peer()}) as portal:
        session = (await portal.run(forged, session="new"))["session"]
        async with watched() as delay:
            await portal.run("1", session=session)
        assert delay.seconds < 2 * MOST_SECONDS
        assert await portal.result_of("await up.echo(a=1)") == {"a": 1}


@pytest.mark.parametrize("times", [1, 25_000])
async def test_word_that_may_begin_a_search_holds_nobody_up_however_often_it_comes(
    tmp_path: Path, anyio_backend: str, times: int
) -> None:
    async with opened(tmp_path, {"up": Peer()}) as portal:
        async with watched() as delay:
            assert await portal.result_of("1 #" + " portal" * times) == 1
        assert delay.seconds < MOST_SECONDS


@pytest.mark.parametrize("name", ["f", "f${n}"])
async def test_frames_that_an_error_imitates_hold_nobody_up(
    tmp_path: Path, anyio_backend: str, name: str
) -> None:
    """Each function of theirs would be looked for behind much that only begins like one."""
    functions = "\n".join(f"function {name.replace('${n}', str(n))}() {{}}" for n in range(300))
    frames = f"[...Array(300).keys()].map(n => `\\n    at {name} (script.js:2)`).join('')"
    script = f"//{' f' * 450_000}\nthrow new Error({frames})\n{functions}"
    async with opened(tmp_path, server={"kernels": {"javascript": True}}) as portal:
        async with watched() as delay:
            error = await portal.error_of(script, kernel="javascript")
        assert delay.seconds < MOST_SECONDS
        assert (error["code"], error["line"]) == ("script_error", 2)


@pytest.mark.parametrize("size", ["10 ** 4000", "-5", "7", "True", "'many'"])
async def test_forged_size_of_a_result_is_not_told(run: Runner, size: str) -> None:
    forged = INTERPRETER + (
        "import json\n"
        f"told = json.dumps({{'error': {{'code': 'result_limit', 'bytes': {size}}}}}) + '\\n'\n"
        "interpreter()._value = lambda self, script: 1 / 0\n"
        "interpreter().execute = lambda self, settings: told\n"
        "json.dumps = lambda *_, **__: told.strip()"
    )
    result = await run(forged)
    assert result.error.code == "result_limit"
    assert result.error.message.startswith("the script's result is over the limit")


@pytest.mark.parametrize("line", ["10 ** 4000", "0", "True"])
async def test_forged_line_of_an_error_is_not_told(run: Runner, line: str) -> None:
    forged = INTERPRETER + (
        "import json\n"
        f"told = json.dumps({{'error': {{'code': 'wall_limit', 'message': 'm' * 99_000, 'line': {line}}}}})\n"
        "json.dumps = lambda *_, **__: told"
    )
    result = await run(forged)
    assert (result.error.code, result.error.line) == ("script_error", None)
    assert len(result.error.message) <= 8000


TWICE = "".join(f"def f{i}():\n  f{i + 1}()\n  f{i + 1}()\n" for i in range(40))
WRONG = "await echo.say(text=[1])\n"
TWISTED = {
    "nested gathers": "f(" * 60 + "[" + "0," * 30_000 + "]" + ", return_exceptions=True)" * 60,
    "one large value": f"x = [{'1,' * 10_000}]\n" + "await echo.say(text=x)\n" * 3_000,
    "one function called a lot": "def f():\n" + "  x = 1\n" * 5_000 + "  yield\n" + "f()\n" * 8_000,
    "functions that call others twice": TWICE + "f0()",
    "many absent namespaces": "".join(f"x{i}.f()\n" for i in range(8_000)),
}


@pytest.mark.parametrize("twist", TWISTED)
def test_twisted_scripts_are_read_in_time(twist: str) -> None:
    source = WRONG + TWISTED[twist] + "\ntry:\n  await echo.say(text=[1])\nexcept ToolError: pass\n"
    began = time.process_time()
    script = prepared(source, library())
    found = list(syntax_diagnostics(script, snapshot(library()), repairs=True))
    assert time.process_time() - began < 3
    assert any(each.refuses for each in found)

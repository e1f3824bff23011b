"""What every kernel promises, whatever its language: values, calls, limits, causes of an end, records, sessions."""

import asyncio
import base64
import math
from collections.abc import Callable

import pytest

from manifests.grants import Limits
from manifests.json_value import Json
from manifests.kernels import KernelName
from sandbox_runtime.call_port import CallError, Outcome, ToolCall
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.replay import Repetition, replay, resume
from sandbox_runtime.sandbox import Sandbox, Session
from tests.sandbox_runtime.kernels.scripts import SCRIPTS
from tests.sandbox_runtime.replay.recorder import ChancePort, Recorder, facts, kept
from tests.sandbox_runtime.running import EchoPort, Heard, Runner, answering, where

Script = Callable[[str], str]


@pytest.fixture
def script(kernel: KernelName) -> Script:
    return lambda name: SCRIPTS[name][kernel]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value", {"a": [1, None, True, "é"], "big": 12345678901234567890}),
        ("call", {"count": 3, "id": 9007199254740993}),
        ("positional", {"*0": 3, "*1": "x"}),
        ("hundred", [*range(100)]),
        ("many_lines", 240_000),
        ("caught", ["upstream_down", "git is down", "Try again later."]),
        ("caught_memory", 1),
    ],
)
async def test_value_is_the_same_in_every_language(
    run: Runner, script: Script, name: str, value: Json
) -> None:
    assert await run.value(script(name)) == value


async def test_calls_are_in_flight_together(run: Runner, script: Script) -> None:
    """The port answers when all have begun: in sequence that would never happen."""
    port, all_begun = EchoPort(), asyncio.Event()

    async def together(call: ToolCall) -> Outcome:
        outcome = await port(call)
        if call.seq == 100:
            all_begun.set()
        await all_begun.wait()
        return outcome

    assert (await run(script("hundred"), port=together, limits=Limits(parallel_calls=100))).error is None


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("uncaught", "upstream_down", 2),
        ("raised", "script_error", 2),
        ("syntax", "syntax_error", 2),
        ("recursion", "script_error", 1),
        ("memory", "memory_limit", 2),
        ("deadlock", "script_error", None),
        ("not_json", "result_not_json", None),
        ("cycle", "result_not_json", None),
    ],
)
async def test_error_has_a_code_and_the_scripts_line(
    run: Runner, script: Script, name: str, code: str, line: int | None
) -> None:
    error = await run.error(script(name), limits=Limits(memory_mib=64))
    assert error.code == code and line in (None, error.line)
    assert name != "uncaught" or (error.message, error.hint) == ("git is down", "Try again later.")
    assert ".py:" not in error.traceback and "library" not in error.traceback


@pytest.mark.parametrize("letter", ["漢", "😀"])
async def test_many_calls_at_once_may_have_any_letters(run: Runner, script: Script, letter: str) -> None:
    """The guest counts characters, and the host bytes."""
    assert await run.value(script("long_texts") % letter) == [10_000] * 110


async def test_result_that_json_cannot_represent_is_no_error(run: Runner, script: Script) -> None:
    value: dict[str, Json] = {"x": math.nan, "y": math.inf, "z": [-math.inf, '\\"Infinity', math.nan]}

    async def answer(call: ToolCall) -> Outcome:
        if call.function == "git.fails":
            return Outcome(error=CallError("upstream_down", "it is down"), data={**value, "long": 2**60})
        return Outcome(value, content=[{"type": "text", "text": None}, value], beside=[1])

    assert await run.value(script("constants"), port=answer) == [[True, True, '\\"Infinity']] * 3


async def test_json_of_a_host_may_begin_with_a_byte_order_mark(run: Runner) -> None:
    body = base64.b64encode(b'\xef\xbb\xbf{"a": 1}').decode()
    port = answering({"status": 200, "url": "", "headers": [], "body": body})
    assert await run.value("(await portal.fetch('https://a.b')).json()", port=port) == {"a": 1}


async def test_unknown_function_names_the_nearest(run: Runner, script: Script) -> None:
    assert "git.git_log" in (await run.error(script("unknown"))).message


async def test_output_comes_in_order_and_is_cut_between_characters(run: Runner, script: Script) -> None:
    lines = (await run(script("output"))).stdout.splitlines()
    assert lines[0].startswith("a {") and lines[1] == "c"
    result = await run(script("flood"), limits=Limits(stdout_bytes=101))
    assert (result.value, result.stdout) == (7, "é" * 50)
    assert result.stdout_bytes_dropped == 2000 - 100 + len("\nlater\n")


@pytest.mark.parametrize(
    ("name", "limits", "code"),
    [
        ("hang", Limits(wall_seconds=0.3), "wall_limit"),
        ("spin", Limits(cpu_seconds=0.2), "cpu_limit"),
        ("regex", Limits(cpu_seconds=0.2), "cpu_limit"),
        ("memory", Limits(memory_mib=64), "memory_limit"),
        ("one_call_too_many", Limits(tool_calls=3), "tool_calls_limit"),
        ("many_calls", Limits(tool_calls=3), "tool_calls_limit"),
        ("long_argument", Limits(argument_bytes=1000), "argument_limit"),
        ("long_result", Limits(result_bytes=1000), "result_limit"),
        ("emit", Limits(result_bytes=40), "result_limit"),
        ("hundred", Limits(outcome_bytes=5), "outcome_limit"),
        ("nesting", Limits(), "script_error"),
    ],
)
async def test_limit_ends_the_script_and_the_next_one_runs(
    run: Runner, script: Script, name: str, limits: Limits, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_runtime.admission.MAX_REFUSED", 100)
    result = await run(script(name), limits=limits, observer=(heard := Heard()), port=heard)
    assert result.error is not None and result.error.code == code, result
    others = [kernel.parallel for kernel in KERNELS.values() if kernel is not run.sandbox.kernel]
    assert not [word for word in others if word in result.error.hint]
    assert all(f"{key} of " in result.error.message for key in limits.model_fields_set)
    assert all(where(key) in result.error.message for key in limits.model_fields_set)
    assert await run.value(script("call")) == {"count": 3, "id": 9007199254740993}


async def test_call_that_nothing_awaits_is_told_and_not_made(run: Runner, script: Script) -> None:
    port = EchoPort()
    result = await run(script("not_awaited"), port=port)
    assert result.value == 5 and not port.calls
    assert any("`git.git_log(...)` on line 2" in each and "never ran" in each for each in result.notices)


async def test_run_is_replayed_as_it_was(sandbox: Sandbox, script: Script) -> None:
    for name in ("race", "caught", "uncaught", "memory", "deadlock"):
        await Recorder(sandbox).and_replay(script(name), limits=Limits(memory_mib=64))


@pytest.mark.parametrize("part", [0.1, 0.9])
async def test_run_goes_on_where_its_record_ends(sandbox: Sandbox, script: Script, part: float) -> None:
    _, record = await Recorder(sandbox)(script("race"))
    repetition = Repetition(kept(record.until(int(part * len(record.events)))), goes_on=True)
    result = await resume(sandbox, repetition, where, ChancePort())
    assert result.error is None and repetition.record is not None
    assert facts(await replay(sandbox, repetition.record, where)) == facts(result)


async def test_randomness_and_clocks_are_those_of_the_run(run: Runner, script: Script) -> None:
    assert len({str(await run.value(script("random"))) for _ in range(4)}) == 4
    now = await run.value(script("clock"))
    assert isinstance(now, list) and now[0] > 1_700_000_000 and now[1] == 0


async def test_session_keeps_what_its_scripts_bound(run: Runner, session: Session, script: Script) -> None:
    await run(script("keep"), session=session)
    for name in ("raised", "syntax", "not_json", "uncaught", "exit"):
        assert (await run(script(name), session=session)).error is not None
    assert (await run(script("kept"), session=session)).value == [1, 2]
    await run.error(script("spin"), session=session, limits=Limits(cpu_seconds=0.2))
    assert not session.alive

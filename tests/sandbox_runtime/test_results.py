"""Scripts get all content blocks of a call, and all of an error."""

from types import SimpleNamespace

import pytest

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.call_port import CallError, CallPort, Outcome, ToolCall
from sandbox_runtime.guest import results
from sandbox_runtime.result import Prepared
from sandbox_runtime.sandbox import Session
from tests.sandbox_runtime.running import Runner

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
WRITTEN = {"type": "text", "text": '{\n  "n": 3\n}'}
CHART = Outcome({"n": 3}, content=[WRITTEN, IMAGE], beside=[1])


def outcomes(**by_function: Outcome) -> CallPort:
    async def answer(call: ToolCall) -> Outcome:
        return by_function[call.function.removeprefix("git.")]

    return answer


ALL = outcomes(
    git_log=CHART,
    git_show=Outcome("plain"),
    git_diff=Outcome([IMAGE]),
    fails=Outcome(
        error=CallError("tool_error", "no", "hint"),
        data={"code": "NEEDS_HUMAN"},
        content=[{"type": "text", "text": "no"}, IMAGE],
    ),
)


async def test_blocks_and_text_are_those_of_the_call_that_returned_the_value(run: Runner) -> None:
    script = """
a, b, c = await git.git_log(), await git.git_show(), await git.git_diff()
portal.emit(portal.blocks(a))
[portal.blocks(a), portal.text(a), portal.blocks(b), portal.text(b), portal.blocks(c), portal.text(c)]"""
    result = await run(script, port=ALL)
    assert result.value == [
        [WRITTEN, IMAGE],
        WRITTEN["text"],
        [{"type": "text", "text": "plain"}],
        "plain",
        [IMAGE],
        "",
    ]
    assert result.emitted == (WRITTEN, IMAGE)
    assert not result.notices


@pytest.mark.parametrize(
    ("value", "texts", "said"), [({"n": 3}, 1, '{"n": 3}'), ("a", 1, "a"), ([{}, "ü"], 2, "{}\nü")]
)
async def test_text_that_was_not_sent_is_written_anew(
    run: Runner, value: Json, texts: int, said: str
) -> None:
    port = outcomes(git_log=Outcome(value, content=[{"type": "text", "text": None}] * texts))
    assert await run.value("portal.text(await git.git_log())", port=port) == said


async def test_each_of_many_equal_values_has_its_own_blocks_unless_python_has_it_once(run: Runner) -> None:
    async def numbered(call: ToolCall) -> Outcome:
        value: Json = None if call.function == "git.git_show" else {}
        return Outcome(value, content=[{"type": "text", "text": str(call.seq)}], beside=[0])

    script = "[portal.text(x) for x in await asyncio.gather(*[git.git_log() for _ in range(20)])]"
    assert await run.value(script, port=numbered) == [str(n) for n in range(1, 21)]
    once = "a = await git.git_show()\nb = await git.git_show()\nportal.text(a)"
    assert await run.value(once, port=numbered) == "2"


@pytest.mark.parametrize(
    "wrong", ["dict(await git.git_log())", "(await git.git_log())['n']", "{}", "[await git.git_log()]"]
)
async def test_what_no_call_returned_is_an_error_that_says_so(run: Runner, wrong: str) -> None:
    error = await run.error(f"portal.blocks({wrong})", port=ALL)
    assert error.message.startswith("ValueError: pass the value of an upstream's function")


async def test_dropped_values_are_not_held(run: Runner) -> None:
    async def large(call: ToolCall) -> Outcome:
        return Outcome(["x" * (4_000_000 if call.seq > 50 else 1)])

    script = (
        "held = [await git.git_log() for _ in range(50)]\nfor _ in range(12):\n    await git.git_log()\n1"
    )
    assert (await run(script, port=large, limits=Limits(memory_mib=64))).value == 1


def test_a_call_looks_at_few_of_the_values_that_a_script_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(results, "sys", SimpleNamespace(getrefcount=lambda value: looks.append(1) or 9))
    known, held = results.Results(), [[n] for n in range(1_000)]
    for value in held:
        known.note("up.f", value, [{"type": "text", "text": str(value)}])
    assert len(looks) < 20 * len(held)
    assert [known.blocks(value)[0]["text"] for value in held] == [*map(str, held)]


async def test_what_came_beside_the_data_is_told_once_unless_the_script_looked(run: Runner) -> None:
    result = await run("for _ in range(3):\n    await git.git_log()\n1", port=ALL)
    (notice,) = result.notices
    assert "git.git_log (image)" in notice
    assert not (await run("portal.text(await git.git_log())", port=ALL)).notices


async def test_blocks_of_a_sessions_earlier_run_are_known(run: Runner, session: Session) -> None:
    await run("a = await git.git_log()", port=ALL, session=session)
    assert (await run("portal.blocks(a)", port=ALL, session=session)).value == [WRITTEN, IMAGE]


async def test_error_has_data_and_blocks(run: Runner) -> None:
    script = "try:\n    await git.fails()\nexcept ToolError as e:\n    out = [str(e), e.code, e.data, e.blocks]\nout"
    text: Json = {"type": "text", "text": "no"}
    assert await run.value(script, port=ALL) == [
        "no",
        "tool_error",
        {"code": "NEEDS_HUMAN"},
        [text, IMAGE],
    ]


async def test_uncaught_error_shows_what_its_text_lacks_shortened(run: Runner) -> None:
    shown = 'no\ndata: {"code": "NEEDS_HUMAN"}\nblocks: [{"type": "image"'
    assert (await run.error("await git.fails()", port=ALL)).message.startswith(shown)
    long = outcomes(fails=Outcome(error=CallError("tool_error", "no"), data=["x" * 5_000]))
    assert len((await run.error("await git.fails()", port=long)).message) < 500
    told = outcomes(fails=Outcome(error=CallError("tool_error", 'it said {"a": 1}'), data={"a": 1}))
    assert (await run.error("await git.fails()", port=told)).message == 'it said {"a": 1}'


@pytest.mark.parametrize("given", ["blocks=['a']", "data=loop", "data=Odd()"])
async def test_error_of_a_script_with_any_data_keeps_its_message(run: Runner, given: str) -> None:
    odd = "class Odd:\n    def __str__(self): raise ValueError\nloop = []\nloop.append(loop)\n"
    assert (await run.error(f"{odd}raise ToolError('no', {given})")).message == "no"


async def test_types_that_nothing_defines_are_not_evaluated(run: Runner) -> None:
    async def nothing_is_wrong(prepared: Prepared) -> None:
        assert prepared.problems == ()

    script = "type Row = dict[str, Decimal]\ndef f[T: Hashable](row: Row, kind: T): return kind\nf({}, 1)"
    assert (await run(script, then=nothing_is_wrong)).value == 1

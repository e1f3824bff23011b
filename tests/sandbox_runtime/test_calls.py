"""Calls: how scripts write them, that they run in parallel, and what becomes of them when the script goes on."""

import asyncio

import anyio
import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import CallError, Outcome, ToolCall
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.running import EchoPort, Runner, answering, where

pytestmark = pytest.mark.anyio


async def test_gathered_calls_are_under_way_together(run: Runner) -> None:
    everyone = asyncio.Barrier(20)

    async def meet(call: ToolCall) -> Outcome:
        await everyone.wait()
        return Outcome(call.seq)

    script = "import asyncio\nawait asyncio.gather(*[git.git_log(count=i) for i in range(20)])"
    assert await run.value(script, port=meet) == list(range(1, 21))


async def test_calls_beyond_parallel_calls_wait_their_turn(run: Runner) -> None:
    under_way: set[int] = set()
    most = 0

    async def count(call: ToolCall) -> Outcome:
        nonlocal most
        under_way.add(call.seq)
        most = max(most, len(under_way))
        await anyio.lowlevel.checkpoint()
        under_way.remove(call.seq)
        return Outcome(call.seq)

    script = "import asyncio\nsum(await asyncio.gather(*[git.git_log(count=i) for i in range(30)]))"
    result = await run(script, port=count, limits=Limits(parallel_calls=4))
    assert (result.error, result.value, most) == (None, sum(range(1, 31)), 4)


async def test_timeout_in_the_script_cancels_its_call(run: Runner) -> None:
    port = EchoPort()
    script = """
import asyncio
try:
    async with asyncio.timeout(0.02):
        await git.hangs()
except TimeoutError:
    x = 'late'
await git.git_log()
x
"""
    assert await run.value(script, port=port) == "late"
    assert port.cancelled == [1]


async def test_call_that_nobody_awaits_ends_with_the_run(run: Runner) -> None:
    port = EchoPort()
    # The pause lets the task begin its call: one that begins as the script ends is not made any more.
    script = "t = asyncio.create_task(git.hangs())\nawait asyncio.sleep(0)\nawait git.git_log()\n'done'"
    assert await run.value(script, port=port) == "done"
    assert [call.function for call in port.calls if call.seq in port.cancelled] == ["git.hangs"]


async def test_call_that_was_never_awaited_is_told(run: Runner) -> None:
    result = await run("def forget():\n    git.git_log()\nforget()\n1")
    assert result.value == 1
    assert any("git.git_log" in notice and "line 2" in notice for notice in result.notices)


@pytest.mark.parametrize(
    "use",
    ["c['x']", "c.items", "list(c)", "len(c)", "c + 1", "1 in c", "c == 1", "c < 1", "json.dumps({'a': c})"],
)
async def test_call_used_as_its_value_says_what_is_missing(run: Runner, use: str) -> None:
    result = await run(f"import json\ndef use(c):\n    return {use}\nuse((lambda: git.git_log())())")
    assert result.error is not None
    assert "await git.git_log(...)" in result.error.message
    assert result.error.line == 3


async def test_tool_error_is_caught_by_name_with_everything_it_has(run: Runner) -> None:
    for name in ("ToolError", "portal.ToolError"):
        script = f"try:\n    await git.fails()\nexcept {name} as e:\n    x = [str(e), e.code, e.hint]\nx"
        assert await run.value(script) == ["git is down", "upstream_down", "Try again later."]


async def test_arguments_by_position_are_for_the_host_to_name(run: Runner) -> None:
    port = EchoPort()
    await run("await git.git_log(3, since='May')", port=port)
    assert port.calls[0].arguments == {"*0": 3, "since": "May"}


async def test_argument_that_has_one_form_in_json_is_converted_and_told(run: Runner) -> None:
    result = await run("import datetime\nawait git.git_log(since={'day': datetime.date(2026, 1, 2)})")
    assert result.value == {"since": {"day": "2026-01-02"}}
    assert "argument since['day'] was a date" in result.notices[0]


async def test_argument_that_is_no_json_is_named(run: Runner) -> None:
    result = await run("await git.git_log(since={'day': 1j})")
    assert result.error is not None
    assert "argument since['day'] is a complex" in result.error.message
    assert result.error.line == 1


async def test_outcomes_of_every_kind_arrive(run: Runner) -> None:
    odd = [None, True, 2**70, 1.5, float("inf"), "é😀\u2028", "\ud800", {"": []}]
    script = (
        "v = await git.git_log()\n[v[0], v[1], v[2] == 2**70, v[3], v[4] == float('inf'), v[5], v[6], v[7]]"
    )
    assert await run.value(script, port=answering(odd)) == [
        None,
        True,
        True,
        1.5,
        True,
        "é😀\u2028",
        "\ufffd",
        {"": []},
    ]


async def test_emitted_blocks_come_beside_the_value(run: Runner) -> None:
    result = await run(
        "import portal\nportal.emit({'type': 'text', 'text': 'a'})\nportal.emit([{'type': 'image'}])\n1"
    )
    assert result.value == 1
    assert result.emitted == ({"type": "text", "text": "a"}, {"type": "image"})


@pytest.mark.parametrize(
    ("emitted", "fault"),
    [("'a'", "str"), ("None", "NoneType"), ("{'text': 'a'}", '"type"'), ("[{'type': 5}]", '"type"')],
)
async def test_what_is_no_block_is_an_error_that_shows_one(run: Runner, emitted: str, fault: str) -> None:
    result = await run(f"portal.emit({emitted})")
    assert result.error is not None
    shown, _, told = result.error.message.partition("this is")
    assert ("mimeType" in shown, fault in told) == (True, True)


@pytest.mark.parametrize(
    "line",
    ["x", "1 a", "1 a.b [1]", "-1 a.b {}", "9999999999999999 a.b {}", "\\x00", "1 a.b {}\\n1 a.b {}\\n\\n"],
)
async def test_batch_that_no_guest_of_ours_writes_costs_the_worker(run: Runner, line: str) -> None:
    assert (
        await run.code(f"from wit_world.imports import host\nhost.exchange('{line}', 1000)") == "worker_lost"
    )
    assert await run.value("2") == 2


async def test_arguments_that_cannot_be_read_are_refused(run: Runner) -> None:
    raw = "from wit_world.imports import host\nhost.exchange('1 a.b ' + {}, 1000)"
    for arguments in (
        "'{\"a\": ' + '[' * 5000 + ']' * 5000 + '}'",
        "'{\"a\": ' + '1' * 5000 + '}'",
        "'nonsense'",
    ):
        assert "argument_error" in await run.value(raw.format(arguments))


class Heard:
    """A call observer that remembers."""

    def __init__(self) -> None:
        self.opened: list[tuple[int, str]] = []
        self.withheld: list[tuple[int, str]] = []

    def open(self, seq: int, function: str) -> None:
        self.opened.append((seq, function))

    def withhold(self, seq: int, error: CallError) -> None:
        self.withheld.append((seq, error.code))


async def test_observer_hears_of_calls_that_the_port_never_sees(sandbox: Sandbox) -> None:
    script = "await asyncio.gather(*[git.git_log(count=i) for i in range(3)], return_exceptions=True)\nNone"
    port, heard = EchoPort(), Heard()
    async with sandbox.run(Limits(tool_calls=2, outcome_bytes=3), where) as run:
        await run.prepare(script, ("git",))
        await run.execute({}, port, heard)
    assert heard.opened == [(1, "git.git_log"), (2, "git.git_log"), (3, "git.git_log")]
    assert sorted(heard.withheld) == [(1, "outcome_limit"), (2, "outcome_limit"), (3, "tool_calls_limit")]
    assert [call.seq for call in port.calls] == [1, 2]

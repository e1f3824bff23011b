"""Calls over stdio: answers as they were on the wire, deadlines, cancellation, crashes."""

import json
from pathlib import Path

import anyio
import pytest
from mcp.shared.dispatcher import ProgressFnT

from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, raw_server, text_of
from upstreams.errors import (
    UpstreamArgumentError,
    UpstreamLostError,
    UpstreamRefusedError,
    UpstreamTimeoutError,
)
from upstreams.tools import MISSING

pytestmark = pytest.mark.anyio


async def unheard(progress: float, total: float | None, message: str | None) -> None:
    """Somebody who hears of progress: such a call takes another way through the SDK."""


BOTH_WAYS = pytest.mark.parametrize("progress", [None, unheard], ids=["directly", "by the SDK"])


async def test_ready_upstream_answers() -> None:
    async with fleet_of(server=raw_server()) as fleet:
        upstream = fleet["server"]
        result = await upstream.call("echo", {"n": 2**63, "text": "é💥"}, seconds=DEADLINE_SECONDS)
        assert text_of(result) == {"n": 2**63, "text": "é💥"}
        assert (upstream.server, upstream.instructions) == ("raw 1", "be kind")
        assert (result.structured, result.is_error) == (MISSING, False)


@pytest.mark.parametrize(
    ("sent", "content", "structured"),
    [
        (
            '{"content":[{"type":"hologram","depth":3,"_meta":{"x":1}}]}',
            [{"type": "hologram", "depth": 3, "_meta": {"x": 1}}],
            MISSING,
        ),
        ('{"content":[],"structuredContent":{"id":9223372036854775807}}', [], {"id": 9223372036854775807}),
        ('{"structuredContent":{"surprise":[]}}', [], {"surprise": []}),
        (
            '{"content":[{"type":"text","text":"a"}],"structuredContent":null}',
            [{"type": "text", "text": "a"}],
            MISSING,
        ),
        ('{"content":{"type":"text","text":"a"}}', [{"type": "text", "text": "a"}], MISSING),
        ('{"content":["a",{"type":"text"}]}', [{"type": "text", "text": "a"}, {"type": "text"}], MISSING),
        ('{"toolResult":7}', [{"type": "text", "text": '{"toolResult": 7}'}], MISSING),
        ("{}", [], MISSING),
    ],
)
async def test_sloppy_results_are_kept_whole(sent: str, content: object, structured: object) -> None:
    async with fleet_of(server=raw_server()) as fleet:
        result = await fleet["server"].call("raw", {"result": sent}, seconds=DEADLINE_SECONDS)
    assert (result.content, result.structured) == (content, structured)


@BOTH_WAYS
async def test_error_of_the_upstream_is_told_with_its_code(progress: ProgressFnT | None) -> None:
    async with fleet_of(server=raw_server()) as fleet:
        with pytest.raises(UpstreamRefusedError) as caught:
            # -32000 is also what the SDK says when a connection ends; this one has not.
            await fleet["server"].call(
                "error",
                {"code": -32000, "message": "no such issue"},
                seconds=DEADLINE_SECONDS,
                progress=progress,
            )
        assert (caught.value.rpc_code, caught.value.outcome) == (-32000, "failed")
        assert "no such issue" in str(caught.value)


async def test_error_without_id_answers_the_only_request_in_flight() -> None:
    error = {"code": -32000, "message": "lost the id"}
    async with fleet_of(server=raw_server()) as fleet:
        upstream = fleet["server"]
        for _ in range(2):
            with pytest.raises(UpstreamRefusedError, match="lost the id"):
                await upstream.call("error_without_id", error, seconds=DEADLINE_SECONDS)
        with pytest.raises(UpstreamTimeoutError):
            await upstream.call("hang", {}, seconds=0.05)
        with pytest.raises(UpstreamTimeoutError):  # it may answer the abandoned one
            await upstream.call("error_without_id", error, seconds=0.05)


async def test_unsendable_arguments_are_refused_before_sending() -> None:
    async with fleet_of(server=raw_server()) as fleet:
        with pytest.raises(UpstreamArgumentError) as caught:
            await fleet["server"].call("echo", {"text": "\ud800"}, seconds=DEADLINE_SECONDS)
        assert caught.value.outcome == "not_started"
        await fleet["server"].call("echo", {"text": "\u0000"}, seconds=DEADLINE_SECONDS)


@BOTH_WAYS
async def test_silent_upstream_meets_the_deadline_and_is_told(progress: ProgressFnT | None) -> None:
    async with fleet_of(server=raw_server()) as fleet:
        with pytest.raises(UpstreamTimeoutError) as caught:
            await fleet["server"].call("hang", {}, seconds=0.05, progress=progress)
        assert caught.value.outcome == "unknown"
        assert len(text_of(await fleet["server"].call("cancelled", {}, seconds=DEADLINE_SECONDS))) == 1


@BOTH_WAYS
async def test_cancelled_caller_leaves_nothing_and_the_upstream_is_told(progress: ProgressFnT | None) -> None:
    async with fleet_of(server=raw_server()) as fleet:
        upstream = fleet["server"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: upstream.call("hang", {}, seconds=DEADLINE_SECONDS, progress=progress))
            # In order behind the hanging call on one pipe: once it is answered, that one has arrived.
            await upstream.call("echo", {}, seconds=DEADLINE_SECONDS)
            tasks.cancel_scope.cancel()
        assert len(text_of(await upstream.call("cancelled", {}, seconds=DEADLINE_SECONDS))) == 1


@BOTH_WAYS
async def test_crash_during_a_call_is_unknown_and_the_next_call_works(
    tmp_path: Path, progress: ProgressFnT | None
) -> None:
    effect = tmp_path / "effect"
    async with fleet_of(server=raw_server()) as fleet:
        with pytest.raises(UpstreamLostError) as caught:
            await fleet["server"].call(
                "crash", {"acts_on": str(effect)}, seconds=DEADLINE_SECONDS, progress=progress
            )
        assert caught.value.outcome == "unknown"
        assert "status 7" in str(caught.value)
        assert "about to crash" in str(caught.value)
        await fleet["server"].call("echo", {}, seconds=DEADLINE_SECONDS)
        assert effect.read_text() == "done\n"
        assert [status for _, status in fleet.history] == ["ready", "starting", "ready"]


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "made/up"])
async def test_requests_of_the_upstream_are_refused_and_do_not_hang(method: str) -> None:
    async with fleet_of(server=raw_server()) as fleet:
        result = await fleet["server"].call("ask", {"method": method}, seconds=DEADLINE_SECONDS)
        assert "error" in text_of(result)


async def test_progress_reaches_the_caller() -> None:
    seen = []

    def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with fleet_of(server=raw_server()) as fleet:
        await fleet["server"].call("progress", {}, seconds=DEADLINE_SECONDS, progress=note)
    assert seen == [(1.0, 2.0, None)]


@pytest.mark.parametrize(("annotations", "times"), [({"readOnlyHint": True}, 3), ({}, 1)])
async def test_call_is_repeated_as_long_as_its_tool_says_that_it_is_safe(
    tmp_path: Path, annotations: dict[str, bool], times: int
) -> None:
    tools, acted = tmp_path / "tools.json", tmp_path / "acted"

    def declare(annotations: dict[str, bool]) -> None:
        row = {"name": "crash", "inputSchema": {"type": "object"}, "annotations": annotations}
        tools.write_text(json.dumps([row]))

    declare({"readOnlyHint": True})
    async with fleet_of(tmp_path, raw=raw_server(tools_file=str(tools))) as fleet:
        declare(annotations)  # seen when it is started anew
        with pytest.raises(UpstreamLostError):
            await fleet["raw"].call("crash", {"acts_on": str(acted)}, seconds=DEADLINE_SECONDS)
    assert len(acted.read_text().splitlines()) == times

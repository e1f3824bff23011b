"""Calls over stdio: answers as they were on the wire, whose failure an error is, deadlines, crashes, and retries."""

import json
from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from manifests.names import ToolNames
from manifests.portal_manifest import RetryRules, may_repeat
from tests.upstreams.peers import WatchedFleet, fleet_of, raw_server, text_of
from upstreams.errors import (
    UpstreamArgumentError,
    UpstreamBusyError,
    UpstreamDownError,
    UpstreamError,
    UpstreamFaultError,
    UpstreamInternalError,
    UpstreamLostError,
    UpstreamPageError,
    UpstreamRefusedError,
    UpstreamTimeoutError,
    UpstreamUnauthorizedError,
    UpstreamUnavailableError,
    kind_of_refusal,
)
from upstreams.tools import MISSING, ToolResult, read_result
from upstreams.upstream import with_retries


async def test_ready_upstream_answers(raw: WatchedFleet) -> None:
    result = await raw.call("echo", {"n": 2**63, "text": "é💥"})
    assert text_of(result) == {"n": 2**63, "text": "é💥"}
    assert (raw.one.server, raw.one.instructions) == ("raw 1", "be kind")
    assert (result.structured, result.is_error) == (MISSING, False)


A = {"type": "text", "text": "a"}
HOLOGRAM = {"type": "hologram", "depth": 3, "_meta": {"x": 1}}
TOOL_RESULT = {"type": "text", "text": '{"toolResult": 7}'}


@pytest.mark.parametrize(
    ("sent", "content", "structured"),
    [
        ({"content": [HOLOGRAM]}, [HOLOGRAM], MISSING),
        ({"content": [], "structuredContent": {"id": 2**63 - 1}}, [], {"id": 2**63 - 1}),
        ({"structuredContent": {"surprise": []}}, [], {"surprise": []}),
        ({"content": [A], "structuredContent": None}, [A], MISSING),
        ({"content": A}, [A], MISSING),
        ({"content": ["a", {"type": "text"}]}, [A, {"type": "text"}], MISSING),
        ({"toolResult": 7}, [TOOL_RESULT], MISSING),
        ({}, [], MISSING),
    ],
)
async def test_sloppy_results_are_kept_whole(
    raw: WatchedFleet, sent: Json, content: object, structured: object
) -> None:
    result = await raw.call("raw", {"result": json.dumps(sent)})
    assert (result.content, result.structured) == (content, structured)


def test_is_error_may_be_text() -> None:
    for is_error, read in (True, True), ("true", True), ("True", True), ("false", False), (None, False):
        assert read_result({"content": [], "isError": is_error}, null_is_a_value=False).is_error is read


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (-32602, "Invalid params", UpstreamRefusedError),
        (-32601, "Method not found", UpstreamRefusedError),
        (-32002, "Resource not found", UpstreamRefusedError),
        (404, "no such issue", UpstreamRefusedError),
        (-32603, "open /data/tea.xlsx: no such file or directory", UpstreamInternalError),
        (-32000, "database is locked", UpstreamInternalError),
        (500, "oh", UpstreamInternalError),
        (-32042, "sign in there first", UpstreamPageError),
        (-32602, "fetch failed", UpstreamInternalError),
        (400, "connect ECONNREFUSED 127.0.0.1:9", UpstreamInternalError),
        (-32602, "getaddrinfo ENOTFOUND api.example", UpstreamInternalError),
        (-32602, "Temporary failure in name resolution", UpstreamInternalError),
        (-32602, "x" * 65_536 + " fetch failed", UpstreamRefusedError),  # not stored either
    ],
)
def test_only_an_error_about_the_call_blames_it(code: int, message: str, kind: type) -> None:
    found = kind_of_refusal(code, message)
    assert found is kind
    assert (found.code, found.outcome) == ("upstream_refused", "failed")
    assert ("Change the call" in found.hint) == (kind is UpstreamRefusedError)
    # Most SDKs send -32603 for whatever a tool raises, also about an argument.
    assert ("If its text is about an argument" in found.hint) == (kind is UpstreamInternalError)


async def test_progress_that_comes_with_the_answer_is_told_before_it(raw: WatchedFleet) -> None:
    line = '{"method":"notifications/progress","params":{"progressToken":ID,"progress":%d}}\n'
    sent, told = {"front": line % 0 + line % 1 + line % 2, "result": "{}"}, list[float]()
    await raw.call("raw", sent, progress=lambda step, *_: told.append(step))
    assert told == [0, 1, 2]


async def test_error_is_told_with_its_code(raw: WatchedFleet) -> None:
    with pytest.raises(UpstreamInternalError, match="no such issue") as caught:
        # It is also what the SDK says when a connection ends; this one has not.
        await raw.call("error", {"code": -32000, "message": "no such issue"})
    assert (caught.value.rpc_code, caught.value.outcome) == (-32000, "failed")


async def test_answer_to_tools_list_is_told_as_that() -> None:
    spec = raw_server(tools_error={"code": -32603, "message": "fetch failed"})
    async with fleet_of(one=spec) as fleet:
        assert fleet.one.state.detail == "its answer to tools/list is an error: fetch failed"


async def test_greeting_before_the_first_answer_is_no_remark() -> None:
    async with fleet_of(one=raw_server(banner="Code Runner MCP Server running on stdio")) as fleet:
        assert fleet.one.diagnostics == ()


async def test_error_without_id_answers_the_only_request_in_flight() -> None:
    error = {"code": -32000, "message": "lost the id"}
    async with fleet_of(one=raw_server()) as fleet:
        for _ in range(2):
            with pytest.raises(UpstreamRefusedError, match="lost the id"):
                await fleet.call("error_without_id", error)
        with pytest.raises(UpstreamTimeoutError):
            await fleet.call("hang", seconds=0.05)
        with pytest.raises(UpstreamTimeoutError):  # it may answer the abandoned one
            await fleet.call("error_without_id", error, seconds=0.05)


async def test_unsendable_arguments_are_refused_before_sending(raw: WatchedFleet) -> None:
    with pytest.raises(UpstreamArgumentError) as caught:
        await raw.call("echo", {"text": "\ud800"})
    assert caught.value.outcome == "not_started"
    await raw.call("echo", {"text": "\u0000"})


async def test_silent_upstream_is_told_of_the_deadline(raw: WatchedFleet) -> None:
    before = len(text_of(await raw.call("cancelled")))
    with pytest.raises(UpstreamTimeoutError) as caught:
        await raw.call("hang", seconds=0.05)
    assert caught.value.outcome == "unknown"
    assert len(text_of(await raw.call("cancelled"))) == before + 1


async def test_requests_of_the_upstream_are_refused_and_do_not_hang(raw: WatchedFleet) -> None:
    for method in ("sampling/createMessage", "roots/list", "made/up"):
        assert "error" in text_of(await raw.call("ask", {"method": method}))


@pytest.mark.parametrize(("annotations", "times"), [({"readOnlyHint": True}, 3), ({}, 1)])
async def test_call_is_repeated_while_its_tool_says_so(
    tmp_path: Path, annotations: dict[str, bool], times: int
) -> None:
    tools, acted = tmp_path / "tools.json", tmp_path / "acted"

    def declare(annotations: dict[str, bool]) -> None:
        row = {"name": "crash", "inputSchema": {"type": "object"}, "annotations": annotations}
        tools.write_text(json.dumps([row]))

    declare({"readOnlyHint": True})
    async with fleet_of(one=raw_server(tools_file=str(tools))) as fleet:
        declare(annotations)  # seen when it is started anew
        with pytest.raises(UpstreamLostError):
            await fleet.call("crash", {"acts_on": str(acted)})
    assert len(acted.read_text().splitlines()) == times


async def outcome(*failures: UpstreamError, is_safe: bool) -> object:
    """How many attempts an upstream has that fails in this order and then answers, and the class of its last error."""
    waiting, attempts = list(failures), 0

    async def attempt(failures: object) -> ToolResult:
        nonlocal attempts
        attempts += 1
        if waiting:
            raise waiting.pop(0)
        return ToolResult([], MISSING, is_error=False)

    try:
        await with_retries(attempt, attempts=3, is_safe=lambda: is_safe, deadline=anyio.current_time() + 30)
    except UpstreamError as error:
        return attempts, type(error)
    return attempts


LOST, FAULT, BUSY = UpstreamLostError("cut"), UpstreamFaultError("HTTP 502"), UpstreamBusyError("429")
STALE, UNAUTHORIZED = UpstreamUnavailableError("stale"), UpstreamUnauthorizedError("401")
REFUSED, LATE, DOWN = UpstreamRefusedError("no"), UpstreamTimeoutError("late"), UpstreamDownError("down")


@pytest.mark.parametrize(
    ("failures", "if_safe", "if_not"),
    [
        ([LOST], 2, (1, UpstreamLostError)),  # it may have acted
        ([FAULT], 2, (1, UpstreamFaultError)),
        ([STALE], 2, 2),  # it certainly did nothing
        ([UNAUTHORIZED], 2, 2),
        ([BUSY], 2, 2),
        ([UpstreamBusyError("429", after_seconds=0.01)], 2, 2),
        ([UpstreamBusyError("429", after_seconds=3600)], (1, UpstreamBusyError), (1, UpstreamBusyError)),
        ([REFUSED], (1, UpstreamRefusedError), (1, UpstreamRefusedError)),  # it would fail again
        ([LATE], (1, UpstreamTimeoutError), (1, UpstreamTimeoutError)),
        ([DOWN], (1, UpstreamDownError), (1, UpstreamDownError)),
        ([UNAUTHORIZED] * 2, (2, UpstreamUnauthorizedError), (2, UpstreamUnauthorizedError)),  # renewed once
    ],
)
async def test_call_is_sent_again_only_where_safe(
    failures: Iterable[UpstreamError], if_safe: object, if_not: object
) -> None:
    assert await outcome(*failures, is_safe=True) == if_safe
    assert await outcome(*failures, is_safe=False) == if_not


NAMES = ToolNames("my-bank", "my_bank", "get-it", "get_it")


@pytest.mark.parametrize(
    ("rules", "annotations", "allowed"),
    [
        ({}, {"readOnlyHint": True}, True),
        ({}, {"idempotentHint": True}, True),
        ({}, {"readOnlyHint": True, "destructiveHint": False}, True),
        ({}, {"readOnlyHint": True, "destructiveHint": True}, False),
        ({}, {"idempotentHint": True, "destructiveHint": True}, True),
        ({}, {}, False),
        ({}, {"readOnlyHint": "yes", "idempotentHint": 1}, False),
        ({}, {"destructiveHint": False}, False),
        ({"allow": ("get_*",)}, {"readOnlyHint": True, "destructiveHint": True}, True),
        ({"allow": ("set_*",)}, {}, False),
        ({"deny": ("*",)}, {"readOnlyHint": True}, False),
        ({"allow": ("*",), "deny": ("get_i?",)}, {}, False),
        ({"deny": ("my_bank.get_it",)}, {"readOnlyHint": True}, False),
        ({"allow": ("my-bank.get-it",)}, {}, True),
        ({"allow": ("bank.get_it", "my_bank.get-it")}, {}, False),
    ],
)
def test_annotations_and_the_manifest_decide_what_may_be_repeated(
    rules: dict[str, Json], annotations: dict[str, Json], allowed: bool
) -> None:
    assert may_repeat(RetryRules.model_validate(rules), NAMES, annotations) is allowed

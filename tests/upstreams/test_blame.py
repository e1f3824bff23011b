"""Whose failure an error is: the call's, or that of the upstream and of what is behind it."""

import pytest

from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, raw_server
from upstreams.errors import UpstreamInternalError, UpstreamRefusedError, kind_of_refusal
from upstreams.tools import read_result

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (-32602, "Invalid params", UpstreamRefusedError),
        (-32601, "Method not found", UpstreamRefusedError),
        (-32002, "Resource not found", UpstreamRefusedError),
        (404, "no such issue", UpstreamRefusedError),
        (-32603, "Internal error", UpstreamInternalError),
        (-32000, "database is locked", UpstreamInternalError),
        (-32099, "out of quota", UpstreamInternalError),
        (500, "oh", UpstreamInternalError),
        (-5, "an old library", UpstreamInternalError),
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


async def test_error_of_an_upstream_says_whose_it_is() -> None:
    async with fleet_of(server=raw_server()) as fleet:
        with pytest.raises(UpstreamInternalError, match="fetch failed"):
            await fleet["server"].call(
                "error", {"code": -32603, "message": "fetch failed"}, seconds=DEADLINE_SECONDS
            )


async def test_answer_to_tools_list_is_told_as_that() -> None:
    async with fleet_of(server=raw_server(tools_error={"code": -32603, "message": "fetch failed"})) as fleet:
        assert fleet["server"].state.detail == "its answer to tools/list is an error: fetch failed"


async def test_greeting_before_the_first_answer_is_no_remark() -> None:
    async with fleet_of(server=raw_server(banner="Code Runner MCP Server running on stdio")) as fleet:
        assert fleet["server"].diagnostics == ()


@pytest.mark.parametrize(
    ("is_error", "read"),
    [(True, True), ("true", True), ("True", True), ("false", False), (None, False), (0, False)],
)
def test_is_error_may_be_text(is_error: object, read: bool) -> None:
    assert read_result({"content": [], "isError": is_error}, null_is_a_value=False).is_error is read

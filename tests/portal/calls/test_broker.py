"""The broker refuses what is not granted or does not fit, whatever the guest claims, and sends nothing of it."""

from collections.abc import AsyncIterator

import pytest

from manifests.json_value import Json
from sandbox_runtime.call_port import ToolCall
from tests.portal.peers import Opened, Peer, opened, raw, schema, tool


@pytest.fixture(scope="module")
def peer() -> Peer:
    return Peer(
        tool("echo"),
        tool("typed", schema("a", a={"type": "integer"}, b={"type": "string", "default": "x"})),
        tool("drop_all"),
    )


@pytest.fixture(scope="module")
async def portal(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("broker")
    upstreams: dict[str, Peer | dict[str, Json]] = {
        "store": peer,
        "silent": raw(exits_with=3),
    }
    grants: Json = {"tools": {"deny": ["store.drop_*"]}}
    async with opened(folder, upstreams, capabilities=grants) as portal:
        await portal.search()  # which waits for the upstreams
        yield portal


@pytest.mark.parametrize(
    ("function", "arguments", "code"),
    [
        ("store.drop_all", {}, "not_granted"),
        ("silent.echo", {}, "upstream_unavailable"),
        ("store.nothing", {}, "unknown_function"),
        ("nowhere.echo", {}, "unknown_function"),
        ("store." + "x" * 100_000, {}, "unknown_function"),
        ("store.typed", {"a": "no"}, "invalid_arguments"),
        ("store.typed", {"a": 1, "c": 2}, "invalid_arguments"),
    ],
)
async def test_a_call_that_may_not_be_is_refused_and_not_sent(
    portal: Opened, peer: Peer, function: str, arguments: dict[str, Json], code: str
) -> None:
    before = len(peer.calls)
    calls = await portal.calls()
    calls.open(1, function)
    outcome = await calls(ToolCall(1, function, arguments))
    assert outcome.error is not None and outcome.error.hint
    assert len(outcome.error.message) < 2_000
    (row,) = calls.run.ledger.rows()
    assert (row["state"], row["error"]["code"]) == ("refused", code)
    assert len(peer.calls) == before

"""Upstreams that want OAuth, against the SDK's authorization server and its MCP server that takes only its tokens."""

from collections.abc import AsyncIterator
from functools import partial

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from manifests.json_value import Json
from tests.portal.peers import Barrier, Peer, never, tool
from tests.upstreams.oauth_peer import (
    NAME,
    SCOPE,
    SERVER_METADATA,
    ProtectedServer,
    announce,
    echo,
    logged_in,
    protected,
    saying,
    signed_in,
    signed_in_fleet,
    tokens_of,
)
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of
from upstreams.errors import (
    UpstreamDownError,
    UpstreamError,
    UpstreamRefusedError,
    UpstreamRightsError,
    UpstreamTimeoutError,
)
from upstreams.oauth import tokens

pytestmark = pytest.mark.usefixtures("own_state")

CALLS = 20


@pytest.fixture
async def server() -> AsyncIterator[ProtectedServer]:
    peer = Peer(tool("echo"), tool("look"), tool("meet"), tool("hang"), meet=Barrier(CALLS), hang=never)
    async with protected(peer) as server:
        yield server


async def test_token_refused_mid_run_is_renewed_and_the_call_sent_again(server: ProtectedServer) -> None:
    async with signed_in_fleet(server) as fleet:
        await echo(fleet, a=1)
        server.authorization.expire()
        assert await echo(fleet, a=2) == {"a": 2}
        assert [status for _, status in fleet.history] == ["ready"], "the connection is the same one"
    assert server.peer.calls == [("echo", {"a": 1}), ("echo", {"a": 2})]
    assert server.authorization.grants == ["authorization_code", "refresh_token"]


async def test_many_calls_at_once_share_one_renewal(server: ProtectedServer) -> None:
    async with signed_in_fleet(server) as fleet:
        await echo(fleet)
        server.authorization.expire()
        async with anyio.create_task_group() as tasks:
            for number in range(CALLS):
                tasks.start_soon(partial(fleet[NAME].call, "meet", {"n": number}, seconds=DEADLINE_SECONDS))
    met = [arguments["n"] for name, arguments in server.peer.calls if name == "meet"]
    assert sorted(met) == [*range(CALLS)]
    assert server.authorization.grants == ["authorization_code", "refresh_token"]


async def test_two_portals_do_not_use_the_same_refresh_token_twice(server: ProtectedServer) -> None:
    spec = server.spec()
    await logged_in(spec)
    async with fleet_of(**{NAME: spec}) as one, fleet_of(**{NAME: spec}) as other:
        for fleet in (one, other):
            await echo(fleet)
        for _ in range(3):
            server.authorization.expire()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(echo, one)
                tasks.start_soon(echo, other)
    assert "reuse" not in server.authorization.grants
    assert server.authorization.grants.count("refresh_token") == 3


async def test_token_that_is_refused_although_it_is_new_is_renewed_only_once(server: ProtectedServer) -> None:
    async with signed_in_fleet(server) as fleet:
        await echo(fleet)
        server.answers["/mcp"] = saying({}, 401)
        with pytest.raises(UpstreamError) as caught:
            await echo(fleet)
        assert caught.value.outcome in ("failed", "not_started")
        await fleet.until(lambda: fleet[NAME].state.status == "needs_login")
    assert server.authorization.grants == ["authorization_code", "refresh_token"]


async def test_tools_refused_alone_spend_few_refresh_tokens_and_need_no_login(
    server: ProtectedServer,
) -> None:
    async with signed_in_fleet(server) as fleet:
        server.refused_tools = {"hang", "look", "meet"}
        for turn in range(3):
            for tool_name in ("hang", "meet", "look"):
                with pytest.raises(UpstreamRefusedError) as caught:
                    await fleet[NAME].call(tool_name, {}, seconds=DEADLINE_SECONDS)
                assert (caught.value.code, caught.value.outcome) == ("upstream_unauthorized", "failed")
                assert turn == 0 or isinstance(caught.value, UpstreamRightsError)
            assert turn or await echo(fleet, a=1) == {"a": 1}, "at first they are refused in a row"
        assert server.authorization.grants == ["authorization_code", *["refresh_token"] * 2]
        assert fleet.history[-1][1] == "ready" and fleet[NAME].connector.opened == 2
        server.authorization.expire()  # what others notice
        assert await echo(fleet, a=2) == {"a": 2}
        server.refused_tools = set()
        with pytest.raises(UpstreamTimeoutError):
            await fleet[NAME].call("hang", {}, seconds=0.05)
    assert server.authorization.grants.count("refresh_token") == 3


async def test_tool_that_was_refused_alone_may_renew_again_later(
    server: ProtectedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "REFUSAL_SECONDS", 0.0)
    async with signed_in_fleet(server) as fleet:
        server.refused_tools = {"echo"}
        with pytest.raises(UpstreamRefusedError):
            await echo(fleet)
        server.refused_tools = set()
        await fleet[NAME].call("look", {}, seconds=DEADLINE_SECONDS)
        server.authorization.expire()
        assert await echo(fleet, a=1) == {"a": 1}


async def test_refused_token_of_the_portal_itself_is_replaced_later(
    server: ProtectedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have granted meanwhile what it lacks."""
    server.authorization.add_client("portal", "s3cret-long")
    async with tokens_of(server.client_spec("s3cret-long")) as kept:
        first = await kept.headers()
        with pytest.raises(UpstreamDownError, match="refuses even a new token"):
            await kept.renewed(first, "")
        monkeypatch.setattr(tokens, "ANOTHER_SECONDS", 0.0)
        await kept.renewed(first, "")
        assert await kept.headers() != first


@pytest.mark.parametrize(
    ("challenge", "renewals"),
    [
        ('Bearer realm="a", error="invalid_token"', 1),
        ('Bearer error="insufficient_scope", error_description="no invalid_token"', 0),
    ],
)
async def test_403_about_the_token_renews_once(
    server: ProtectedServer, challenge: str, renewals: int
) -> None:
    async def forbid(request: Request) -> Response:
        if is_once:
            del server.answers["/mcp"]
        return Response(status_code=403, headers={"www-authenticate": challenge})

    async with signed_in_fleet(server) as fleet:
        is_once = bool(renewals)
        server.answers["/mcp"] = forbid
        if renewals:
            assert await echo(fleet, a=1) == {"a": 1}
        is_once, server.answers["/mcp"] = False, forbid
        for _ in range(3):
            with pytest.raises(UpstreamError):
                await echo(fleet)
    assert server.authorization.grants.count("refresh_token") == 2 * renewals


async def test_login_needs_only_the_head_of_what_answers_the_probe(server: ProtectedServer) -> None:
    async def never_ends() -> AsyncIterator[bytes]:
        yield b": open\n\n"
        await anyio.sleep_forever()

    async def answer(request: Request) -> Response:
        return StreamingResponse(never_ends(), media_type="text/event-stream")

    server.answers["/mcp"] = answer
    assert (await signed_in(server.spec())).access_token


async def test_client_credentials_need_nobody_and_are_renewed(server: ProtectedServer) -> None:
    secret, method = "s3cret:with/odd +characters", "client_secret_post"
    server.authorization.add_client("portal", secret, method)
    changed: dict[str, Json] = {"code_challenge_methods_supported": None}
    changed["token_endpoint_auth_methods_supported"] = [method]
    await announce(server.authorization, SERVER_METADATA, **changed)
    async with fleet_of(**{NAME: server.client_spec(secret)}) as fleet:
        assert await echo(fleet, a=1) == {"a": 1}
        server.authorization.expire()
        assert await echo(fleet, a=2) == {"a": 2}
    assert server.authorization.grants == ["client_credentials"] * 2
    assert {(form["scope"], form["resource"]) for form in server.authorization.forms} == {(SCOPE, server.url)}

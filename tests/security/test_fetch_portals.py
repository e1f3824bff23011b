"""A script reaches no portal by `portal.fetch`, whatever the manifest grants. The twin: it reaches its neighbour."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from manifests.grants import NetworkGrant
from manifests.json_value import Json
from portal.app.running import RunningPortal, announced, is_portal_port
from portal.calls.fetch import FROM_SCRIPT, Fetcher, FetchError, Network
from portal.runs.webhooks import network_of
from tests.portal.app.test_http_app import BEARER, TOKEN
from tests.portal.app.test_http_app import served as portal_served
from tests.portal.peers import opened
from tests.sandbox_runtime.fetching import Names, Server, redirect, served
from tests.sandbox_runtime.running import where

pytestmark = pytest.mark.anyio


def own_address() -> str:
    """An address of this machine that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
async def victim() -> AsyncIterator[Server]:
    """It is announced as a portal, and nothing ever arrives at it."""
    async with served() as victim:
        with announced(RunningPortal(1, "", "127.0.0.1", victim.port)):
            yield victim
        assert victim.requests == []


def network(*private: str, names: Names | None = None, allow: tuple[str, ...] = ()) -> Network:
    grant = NetworkGrant(private=private, allow=allow)
    return Network(grant, where, resolve=names or Names(), is_portal=is_portal_port)


async def code_of(network: Network, url: str, **more: Json) -> tuple[str, str]:
    with pytest.raises(FetchError) as caught:
        await Fetcher(network).fetch({"url": url, **more}, lambda: None)
    error = caught.value.call_error
    return error.code, error.hint


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "a.example", "own"]
)
async def test_no_spelling_of_an_address_leads_to_a_portal(server: Server, victim: Server, host: str) -> None:
    host = own_address() if host == "own" else host
    names = Names({"a.example": [["127.0.0.1"]]})
    granted = network(f"{host}:{victim.port}", f"127.0.0.1:{server.port}", names=names)
    assert (await code_of(granted, f"http://{host}:{victim.port}/runs"))[0] == "address_not_allowed"
    assert b'"status":200' in await Fetcher(granted).fetch({"url": f"{server.base}/twin"}, lambda: None)


async def test_no_redirect_and_no_second_answer_leads_to_a_portal(server: Server, victim: Server) -> None:
    server.answers["/go"] = redirect(f"http://b.example:{victim.port}/runs")
    names = Names({"b.example": [["127.0.0.1"]]})
    granted = network(f"127.0.0.1:{server.port}", f"b.example:{victim.port}", names=names)
    code, hint = await code_of(granted, f"{server.base}/go")
    assert code == "address_not_allowed" and "No rule" in hint


async def test_each_request_of_a_script_says_so_and_no_script_says_otherwise(server: Server) -> None:
    async with served() as other:
        granted = network(f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}")
        server.answers["/go"] = redirect(f"{other.base}/there")
        await Fetcher(granted).fetch({"url": f"{server.base}/go"}, lambda: None)
        assert [each.headers[FROM_SCRIPT] for each in (*server.requests, *other.requests)] == ["1", "1"]
        for name in (FROM_SCRIPT, FROM_SCRIPT.upper()):
            given: Json = {"url": server.base, "headers": [[name, ""]]}
            assert (await code_of(granted, **given))[0] == "invalid_arguments"


async def test_webhook_is_of_the_operator_and_may_reach_a_portal(server: Server, tmp_path: Path) -> None:
    async with opened(tmp_path) as own:
        hook = network_of(f"{server.base}/hooks/x", own.portal.manifest)
    await Fetcher(hook).fetch({"url": f"{server.base}/hooks/x"}, lambda: None)
    assert FROM_SCRIPT not in server.requests[0].headers


PATHS = [
    "/mcp",
    "/runs",
    "/runs/run_1/answers/1",
    "/hooks/x",
    "/metrics",
    "/",
    "/ui/",
    "/oauth/sign-in/start/x",
]


async def test_every_door_of_a_portal_refuses_what_a_script_sends_but_health_checks(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, telemetry={"metrics": True}) as own,
        portal_served(own, TOKEN) as origin,
        httpx2.AsyncClient(base_url=origin, headers=BEARER) as http,
    ):
        for path in PATHS:
            for method in ("GET", "POST", "DELETE", "OPTIONS"):
                answer = await http.request(method, path, headers={FROM_SCRIPT: ""})
                assert answer.status_code == 403, (method, path)
        for path in ("/healthz", "/readyz"):
            assert (await http.get(path, headers={FROM_SCRIPT: "1"})).status_code == 200
        assert (await http.get("/runs")).status_code == 200


@pytest.mark.parametrize(
    ("host", "hint"),
    [("10.0.0.7", "network.private"), ("169.254.169.254", "address itself"), ("203.0.113.80", "No rule")],
)
async def test_address_that_is_not_allowed_says_what_could_allow_it(host: str, hint: str) -> None:
    granted = network(allow=(host,))
    assert hint in (await code_of(granted, f"http://{host}/"))[1]

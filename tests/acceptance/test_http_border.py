"""The portal's refusals over HTTP, and its messages to the person who starts it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.acceptance import real_servers
from tests.acceptance.portal_process import HttpPortal, http_model, http_portal, write_manifest
from tests.warm_commands import warm_command

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-the-tests"
READER = "a-readers-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ROUTES = ["/mcp", "/healthz", "/readyz", "/anything"]
REFUSAL_SECONDS = 30


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpPortal]:
    """One with a token, a living upstream and a dead one."""
    upstreams = {"time": real_servers.time(), "missing": {"command": "no-such-program-anywhere"}}
    reader = {"tools": {"deny": ["convert_time"]}, "limits": {"tool_calls": 1}}
    manifest = write_manifest(
        tmp_path_factory.mktemp("http_border"),
        upstreams,
        server={"token": TOKEN, "tokens": [{"token": READER, "profile": "reader"}], "start_seconds": 20},
        profiles={"reader": reader},
    )
    with http_portal(manifest) as portal:
        yield portal


def test_bind_beyond_loopback_without_a_token_is_refused(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {})
    done = subprocess.run(
        [*warm_command(), "serve", "--config", str(manifest), "--http", "0.0.0.0:0"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=REFUSAL_SECONDS,
    )
    assert done.returncode != 0
    assert "server.token" in done.stderr
    assert "Traceback" not in done.stderr


def test_bind_beyond_loopback_with_a_token_serves(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {}, server={"token": TOKEN})
    with http_portal(manifest, "0.0.0.0:0") as portal:
        url = portal.origin.replace("0.0.0.0", "127.0.0.1")
        assert httpx2.get(f"{url}/healthz").status_code == 200
        assert httpx2.post(f"{url}/mcp", json={}).status_code == 401


@pytest.mark.parametrize("route", ROUTES)
def test_foreign_host_is_refused_on_every_route(portal: HttpPortal, route: str) -> None:
    answer = httpx2.get(portal.origin + route, headers={"Host": "evil.example", **BEARER})
    assert answer.status_code == 421


@pytest.mark.parametrize("route", ROUTES)
def test_foreign_origin_is_refused_on_every_route(portal: HttpPortal, route: str) -> None:
    answer = httpx2.get(portal.origin + route, headers={"Origin": "http://evil.example", **BEARER})
    assert answer.status_code == 403


@pytest.mark.parametrize("route", ["/mcp", "/anything"])
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}])
def test_missing_or_wrong_token_is_refused(portal: HttpPortal, route: str, headers: dict[str, str]) -> None:
    answer = httpx2.post(portal.origin + route, json={}, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_client_with_the_token_is_served(portal: HttpPortal) -> None:
    async with http_model(portal, token=TOKEN) as model:
        assert await model.result_of("6 * 7") == 42


async def test_profile_of_a_token_says_what_its_scripts_may_do(portal: HttpPortal) -> None:
    now, convert = "await time_.get_current_time(timezone='UTC')", "await time_.convert_time("
    convert += "source_timezone='UTC', time='12:00', target_timezone='UTC')"
    async with http_model(portal, token=TOKEN) as all_tools, http_model(portal, token=READER) as reader:
        assert (await all_tools.run(f"{now}\n{now}\n{convert}"))["status"] == "ok"
        assert (await reader.run(now))["status"] == "ok"
        assert (await reader.run(f"{now}\n{now}"))["error"]["code"] == "tool_calls_limit"
        assert (await reader.run(convert))["error"]["code"] == "not_granted"
        found = (await reader.search("convert time"))["functions"]
        assert [row["tool"] for row in found if row["upstream"] != "portal"] == ["get_current_time"]


async def test_session_belongs_to_its_token(portal: HttpPortal) -> None:
    async with http_model(portal, token=TOKEN) as owner, http_model(portal, token=READER) as other:
        session = (await owner.run("tea = 'Assam'", session="new"))["session"]
        assert (await other.run("tea", session=session))["status"] == "refused"
        assert (await owner.run("tea", session=session))["result"] == "Assam"


def test_healthz_needs_no_token(portal: HttpPortal) -> None:
    assert httpx2.get(f"{portal.origin}/healthz").status_code == 200


async def test_readyz_is_ready_and_names_the_dead_upstream(portal: HttpPortal) -> None:
    async with http_model(portal, token=TOKEN) as model:
        await model.search()  # which waits for the upstreams to settle
    answer = httpx2.get(f"{portal.origin}/readyz", headers=BEARER)
    assert answer.status_code == 200
    assert answer.json()["ready"] is True
    assert "missing" in answer.json()["not_ready"]


def test_readyz_names_nothing_to_strangers(portal: HttpPortal) -> None:
    answer = httpx2.get(f"{portal.origin}/readyz")
    assert answer.status_code == 200
    assert "missing" not in answer.text

"""Other processes of the user reach a portal by its socket, as long as it runs."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.testing import capture_logs

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.app.consoles import open_client
from portal.app.live import live
from portal.app.running import RunningPortal, announced, running_portals
from portal.app.serving import serve_http
from tests.portal.peers import DEADLINE_SECONDS, write_manifest

pytestmark = pytest.mark.usefixtures("own_state")


async def status() -> Json:
    return {"pid": os.getpid()}


async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    async def endless() -> AsyncIterator[str]:
        yield "changed"
        await anyio.sleep_forever()

    body = await Request(scope, receive).body()
    app: ASGIApp = PlainTextResponse(f"{scope['method']} {scope['path']} {body!r}")
    await (StreamingResponse(endless()) if scope["path"] == "/ui/live" else app)(scope, receive, send)


async def ui() -> ASGIApp:
    return pages


@pytest.mark.parametrize("folder", ["short", "long" * 30])
async def test_portal_answers_by_its_socket_until_it_ends_also_while_a_page_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / folder))
    with announced(RunningPortal(os.getpid(), "/here/portal.yaml")):
        (own,) = running_portals()
        async with open_client(own) as client, live(own, status, ui):
            assert [each.stat().st_mode & 0o777 for each in (own.socket.parent, own.socket)] == [0o700, 0o600]
            assert (await client.get("/status")).json() == {"pid": os.getpid()}
            posted = await client.post("/ui/@x/theme?a=b", content=b"dark")
            assert (posted.text, (await client.get("/else")).status_code) == (
                "POST /ui/@x/theme b'dark'",
                404,
            )
            page = await client.send(client.build_request("GET", "/ui/live"), stream=True)
            assert await anext(page.aiter_text()) == "changed"
        async with open_client(own) as client:
            with pytest.raises(httpx2.TransportError):
                await client.get("/status")


async def test_portal_over_http_has_one_too(tmp_path: Path) -> None:
    manifest, is_listening = load_manifest(write_manifest(tmp_path, {}), {}), anyio.Event()

    def hear(line: str) -> None:
        if line.startswith("listening on "):
            is_listening.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_http, manifest, "127.0.0.1", 0, hear)
        with anyio.fail_after(DEADLINE_SECONDS):
            await is_listening.wait()
        (own,) = running_portals()
        async with open_client(own) as client:
            told = (await client.get("/status")).json()
        tasks.cancel_scope.cancel()
    assert (told["transport"], told["upstreams"]) == (f"http 127.0.0.1:{own.port}", [])


async def test_portal_without_a_place_for_its_socket_runs_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with capture_logs() as events:
        async with live(RunningPortal(os.getpid()), status, pages):
            assert [each["event"] for each in events] == ["portal_has_no_socket"]


def test_file_of_a_portal_has_no_more_than_earlier_versions_know() -> None:
    with announced(own := RunningPortal(os.getpid(), "/here/portal.yaml", "127.0.0.1", 80, {"a": "b"})):
        told = json.loads(own.socket.with_suffix(".json").read_bytes())
    assert [*told] == ["pid", "manifest", "host", "port", "hashes"]

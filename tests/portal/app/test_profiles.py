"""Callers are bound by their token to a profile, a tenant and its files, and get what these leave, at every call."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from manifests.json_value import Json
from tests.portal.app.test_signed_in_streams import HELLO
from tests.portal.peers import Opened, http_app, opened
from tests.portal.server.test_callers import visitor
from tests.upstreams.peers import http_peer


@asynccontextmanager
async def served(portal: Opened) -> AsyncIterator[str]:
    async with http_peer(http_app(portal.portal)) as peer:
        yield f"http://127.0.0.1:{peer.port}/mcp"


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_files_and_environment_are_narrowed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("tea")
    capabilities: Json = {"files": {"workspace": "data", "mode": "write"}, "environment": {"STAGE": "test"}}
    read = "import os\n(open('a.txt').read(), os.environ.get('STAGE'))"
    write = "open('b.txt', 'w').write('x')"
    tokens = [{"token": f"{name}-token", "profile": name} for name in ("reader", "nobody")]
    own: Json = {
        "profiles": {"reader": {"files": "read"}, "nobody": {"files": "none", "environment": []}},
        "server": {"token": "whole-token", "tokens": tokens},
        "capabilities": capabilities,
    }
    bound = ("reader", "nobody")
    async with opened(tmp_path, bound=bound, **own) as portal, served(portal) as url:
        async with visitor(url, "auto", bearing("whole-token")) as whole:
            assert (await whole.run(read))["result"] == ["tea", "test"]
            assert (await whole.run(write))["status"] == "ok"
        (tmp_path / "data" / "b.txt").unlink()
        async with visitor(url, "auto", bearing("reader-token")) as reader:
            assert (await reader.run(read))["result"] == ["tea", "test"]
            assert (await reader.run(write))["status"] == "error"
        async with visitor(url, "auto", bearing("nobody-token")) as nobody:
            assert (await nobody.run("open('a.txt').read()"))["status"] == "refused"
            assert (await nobody.run("import os\nos.environ.get('STAGE')"))["result"] is None
    assert not (tmp_path / "data" / "b.txt").exists()


@pytest.mark.parametrize(("owner", "other"), [("whole", "plain"), ("plain", "whole")])
async def test_mcp_session_of_one_token_is_none_to_another(tmp_path: Path, owner: str, other: str) -> None:
    """CVE-2026-52869, also for the shared token, which has no user."""
    server: Json = {"token": "whole-token", "tokens": [{"token": "plain-token"}]}
    async with opened(tmp_path, server=server) as portal, served(portal) as url, httpx2.AsyncClient() as http:
        own = {"Accept": "application/json, text/event-stream", **bearing(f"{owner}-token")}
        own["mcp-session-id"] = (await http.post(url, json=HELLO, headers=own)).headers["mcp-session-id"]
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        for method in ("POST", "GET", "DELETE"):
            theirs = own | bearing(f"{other}-token")
            assert (await http.request(method, url, json=ping, headers=theirs)).status_code == 404
        assert (await http.post(url, json=ping, headers=own)).status_code == 200


TENANTS: Json = [
    {"token": "anna-token", "tenant": "anna"},
    {"token": "annas-other-token", "tenant": "anna"},
    {"token": "bert-token", "tenant": "bert"},
]
WRITE = 'open("f", "w").write("{}")'
READ = 'open("f").read()'


@asynccontextmanager
async def of_tenants(folder: Path, **files: Json) -> AsyncIterator[str]:
    (folder / "data").mkdir(exist_ok=True)
    async with (
        opened(
            folder,
            capabilities={"files": {"workspace": "data", "mode": "write", "share": "tenant", **files}},
            server={"token": "whole-token", "tokens": TENANTS},
        ) as portal,
        served(portal) as url,
    ):
        yield url


async def run_script(url: str, token: str, script: str) -> Json:
    """The result of a script, or the code of its error."""
    async with visitor(url, "auto", bearing(f"{token}-token")) as one:
        answer = await one.run(script)
    return answer["result"] if answer["status"] == "ok" else answer["error"]["message"].partition(":")[0]


async def test_tokens_of_a_tenant_have_files_together_and_those_of_others_do_not(tmp_path: Path) -> None:
    async with of_tenants(tmp_path) as url:
        await run_script(url, "anna", WRITE.format("annas"))
        assert await run_script(url, "annas-other", READ) == "annas"
        for other in ("bert", "whole"):
            assert await run_script(url, other, READ) == "FileNotFoundError"
            await run_script(url, other, WRITE.format(other))
    kept = {path.parent.name: path.read_text() for path in (tmp_path / "data").glob("*/f")}
    assert kept == {"anna": "annas", "bert": "bert", "_nobody": "whole"}
    async with of_tenants(tmp_path) as url:
        assert await run_script(url, "anna", READ) == "annas"


async def test_folder_of_a_tenant_that_is_a_link_gives_no_files(tmp_path: Path) -> None:
    """It might lead to the manifest and its secrets."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/anna").symlink_to("..")
    async with of_tenants(tmp_path) as url:
        assert await run_script(url, "anna", "import os\nos.listdir()") == "NotADirectoryError"
        assert await run_script(url, "bert", WRITE.format("x")) == 1

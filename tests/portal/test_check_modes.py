"""What `server.check` and `server.repairs` do to a script that is wrong."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, opened, schema, tool

TYPED = tool("typed", schema("a", a={"type": "integer"}, b={"enum": ["x", "y"]}))
WRONG = "print('ran')\nawait store.typed(a=1, b='z')"
ABSENT = "print('ran')\nawait store.tiped(a=1)"
MENDABLE = "(await store.typed(a='7'))['a']"


@asynccontextmanager
async def portal_with(folder: Path, **server: Json) -> AsyncIterator[tuple[Opened, Peer]]:
    peer = Peer(TYPED)
    async with opened(folder, {"store": peer}, server=server) as portal:
        yield portal, peer


@pytest.mark.parametrize(
    ("script", "code"), [(WRONG, "invalid_arguments"), (ABSENT, "script_error")], ids=["wrong", "absent"]
)
async def test_warn_runs_and_tells(tmp_path: Path, script: str, code: str) -> None:
    async with portal_with(tmp_path, check="warn") as (portal, peer):
        answer = await portal.run(script)
    assert (answer["status"], answer["stdout"], answer["error"]["code"]) == ("error", "ran\n", code)
    assert [notice for notice in answer["notices"] if notice.startswith("line 2: ")]
    assert peer.calls == []


@pytest.mark.parametrize(("check", "status"), [("strict", "refused"), ("warn", "error"), ("off", "error")])
async def test_without_repairs_the_call_is_refused(tmp_path: Path, check: str, status: str) -> None:
    async with portal_with(tmp_path, check=check, repairs=False) as (portal, peer):
        answer = await portal.run(MENDABLE)
    assert answer["status"] == status
    assert peer.calls == []

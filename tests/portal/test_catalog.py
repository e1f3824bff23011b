"""The library follows the upstreams, and nobody sees one older than what they waited for."""

import shutil
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from manifests.json_value import Json
from portal.catalog import catalog as catalogs
from tests.portal.peers import DEADLINE_SECONDS, Peer, opened, raw, raw_tools, tool
from upstreams.tools import RecordedTool


def recorded(name: str, description: str = "", **schema: Json) -> RecordedTool:
    return RecordedTool(name, description, {"type": "object", **schema}, None, {}, None)


async def test_a_script_at_once_after_the_start_knows_its_functions(tmp_path: Path) -> None:
    async with opened(tmp_path, {"files": Peer()}) as portal:
        assert await portal.result_of("await files.echo(a=1)") == {"a": 1}


async def test_a_tool_that_an_upstream_adds_is_found_and_can_be_called(tmp_path: Path) -> None:
    upstream = raw(tools=raw_tools("change", "echo"))
    async with opened(tmp_path, {"raw": upstream}) as portal:
        assert await portal.result_of("await raw.change(name='cancelled')") == "null"
        with anyio.fail_after(DEADLINE_SECONDS):
            names: list[str] = []
            while "raw.cancelled" not in names:
                names = [each["name"] for each in (await portal.search("raw.cancelled"))["functions"]]
        assert await portal.result_of("await raw.cancelled()") == []


async def test_rebuild_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = anyio.Event()
    monkeypatch.setattr(catalogs, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(catalogs.log, "error", lambda event, **_: failed.set())
    monkeypatch.setitem(sys.modules, "portal.catalog.search.index", None)  # its import fails
    async with opened(tmp_path, {"store": Peer(tool("echo"))}) as portal:
        own, upstream = portal.portal.catalog, portal.portal.fleet["store"]
        with anyio.fail_after(DEADLINE_SECONDS):
            await failed.wait()
            monkeypatch.delitem(sys.modules, "portal.catalog.search.index")
            assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
            monkeypatch.setitem(sys.modules, "portal.catalog.search.index", None)
            upstream.tools = (recorded("other"),)
            own.note_change()
            assert "store.echo" in (await own.fresh()).library.functions
            monkeypatch.delitem(sys.modules, "portal.catalog.search.index")
            own.note_change()
            assert "store.other" in (await own.fresh()).library.functions


async def test_stub_files_stay_as_they_are_while_a_check_reads_them(tmp_path: Path) -> None:
    async with opened(tmp_path, {"store": Peer()}) as portal:
        await portal.search("echo")
        catalog = portal.portal.catalog
        module = catalog._stubs / "tools" / "store.pyi"
        with anyio.fail_after(DEADLINE_SECONDS):
            async with catalog.steady() as snapshot:
                portal.portal.fleet["store"].tools = (recorded("other"),)
                catalog.note_change()
                with anyio.move_on_after(0.5) as waiting:
                    await catalog.fresh()
                assert waiting.cancelled_caught
                assert "def echo(" in module.read_text()
                assert catalog.snapshot is snapshot
            assert "store.other" in (await catalog.fresh()).library.functions
        assert "def other(" in module.read_text()


async def test_a_disk_that_is_full_costs_the_check_and_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path, {"store": Peer(tool("echo"))}) as portal:
        await portal.search("echo")
        stubs = portal.portal.catalog._stubs
        shutil.rmtree(stubs)
        stubs.write_text("in the way")
        portal.portal.catalog.note_change()
        assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
        assert not portal.portal.catalog.snapshot.is_on_disk
    stubs.unlink()

"""The library follows the upstreams: a caller never sees one older than it waited for, a running script its own."""

import errno
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult

from manifests.json_value import Json
from manifests.own_files import write_whole
from portal.catalog import catalog as catalogs
from portal.catalog.check import language_server
from portal.server.views import stub_folder
from tests.portal.peers import DEADLINE_SECONDS, Peer, opened, schema, states, text, tool
from upstreams.tools import RecordedTool


def recorded(name: str) -> RecordedTool:
    return RecordedTool(name, "", {"type": "object"}, None, {}, None)


async def test_rebuild_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = anyio.Event()
    monkeypatch.setattr(catalogs, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(catalogs.log, "error", lambda event, **_: failed.set())
    monkeypatch.setitem(sys.modules, "portal.catalog.search.index", None)  # its import fails
    async with opened(tmp_path, {"store": Peer(tool("echo"))}) as portal:
        own, upstream = portal.portal.catalog, portal.portal.fleet["store"]
        with anyio.fail_after(DEADLINE_SECONDS):
            await failed.wait()
            assert (await portal.run("1"))["error"]["code"] == "internal_error"
            monkeypatch.delitem(sys.modules, "portal.catalog.search.index")
            assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
            monkeypatch.setitem(sys.modules, "portal.catalog.search.index", None)
            upstream.tools = (recorded("other"),)
            own.note_change()
            assert "store.echo" in (await own.fresh()).library.functions
            monkeypatch.delitem(sys.modules, "portal.catalog.search.index")
            own.note_change()
            assert "store.other" in (await own.fresh()).library.functions


async def test_search_asks_for_no_thread_per_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    async with opened(tmp_path, {"store": Peer(tool("echo"))}) as portal:
        assert (await portal.search("echo"))["total"] == 1
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


async def test_stub_files_stay_as_they_are_while_a_check_reads_them(tmp_path: Path) -> None:
    async with opened(tmp_path, {"store": Peer()}) as portal:
        await portal.search("echo")
        catalog = portal.portal.catalog
        module = catalog._checker._types._folder / "tools" / "store.pyi"
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


async def test_stubs_of_a_rebuild_that_failed_midway_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_then_fail(path: Path, data: bytes, **how: Any) -> None:
        write_whole(path, data, **how)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(language_server, "ANSWER_SECONDS", DEADLINE_SECONDS)
    async with opened(tmp_path, {"store": Peer(tool("echo"))}) as portal:

        async def told(field: str) -> list[str]:
            """What is told of `b`, once the tool declares a result with this field only."""
            output = schema(**{field: {"type": "integer"}})
            portal.portal.fleet["store"].tools = (
                RecordedTool("echo", "", {"type": "object"}, output, {}, None),
            )
            portal.portal.catalog.note_change()
            answer = await portal.run("r = await store.echo(b=1)\nr['b']")
            assert (answer["status"], answer["result"]) == ("ok", 1)
            return [each for each in answer.get("notices", ()) if "'b' is not a known field" in each]

        await portal.search("echo")
        assert len(await told("a")) == 1
        with monkeypatch.context() as full:
            full.setattr("portal.library.library.write_whole", write_then_fail)
            await told("b")
            assert not portal.portal.catalog._checker._is_on_disk
        assert await told("b") == []
        assert portal.portal.catalog._checker._is_on_disk


async def test_running_script_sees_the_library_it_was_checked_against(tmp_path: Path) -> None:
    async def change(arguments: dict[str, Json]) -> CallToolResult:
        echo = replace(recorded("echo"), input_schema=schema("text", text={"type": "string"}))
        portal.portal.fleet["store"].tools = (recorded("grown"), echo)
        portal.portal.catalog.note_change()
        await portal.portal.catalog.fresh()
        return text("changed")

    store = Peer(tool("change"), tool("echo"), tool("gone"), change=change)
    async with opened(tmp_path, {"store": store}) as portal:
        await portal.search()
        changes = "before = dir(store)\nawait store.change()\n"
        seen = (
            "[dir(store) == before, hasattr(store, 'grown'), await store.echo(other=1), await store.gone()]"
        )
        answer = await portal.run(changes + seen)
        assert (answer["status"], answer["result"]) == ("ok", [True, False, {"other": 1}, {}])
        assert states(answer)[-2:] == [("store.echo", "done"), ("store.gone", "done")]
        # Whoever comes after it is held to the new one.
        assert (await portal.run("await store.echo(other=1)"))["status"] == "refused"
        assert (await portal.run("await store.gone()"))["status"] == "refused"
        now = "[hasattr(store, 'grown'), hasattr(store, 'gone'), await store.echo(text='a')]"
        assert await portal.result_of(now) == [True, False, {"text": "a"}]


def test_only_stubs_of_a_process_that_ended_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f"mcp-code-portal-{ended.pid}-abc"
    (left / "tools").mkdir(parents=True)
    names = (f"mcp-code-portal-{os.getpid()}-x", "mcp-code-portal-notes-x", "other-1-x")
    kept = [tmp_path / name for name in names]
    for folder in kept:
        folder.mkdir()
    assert stub_folder().is_dir() and not left.exists()
    assert all(folder.exists() for folder in kept)

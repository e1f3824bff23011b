"""The library follows the upstreams, and nobody sees one older than what they waited for."""

import shutil
from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from tests.portal.peers import DEADLINE_SECONDS, Peer, opened, raw, raw_tools, tool

pytestmark = pytest.mark.anyio


async def test_a_search_at_once_after_the_start_is_answered(tmp_path: Path) -> None:
    async with opened(tmp_path) as portal:
        answer = await portal.search("create issue")
    assert answer["functions"] == []


async def test_many_searches_at_once_after_the_start_are_all_answered(tmp_path: Path) -> None:
    found: list[Json] = []
    async with opened(tmp_path, {"files": Peer()}) as portal:

        async def search() -> None:
            found.append([row["name"] for row in (await portal.search("echo"))["functions"]])

        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(search)
    assert found == [["files.echo"]] * 8


async def test_a_script_at_once_after_the_start_knows_its_functions(tmp_path: Path) -> None:
    async with opened(tmp_path, {"files": Peer()}) as portal:
        assert await portal.result_of("await files.echo(a=1)") == {"a": 1}


async def test_a_tool_that_an_upstream_adds_is_found_and_can_be_called(tmp_path: Path) -> None:
    upstream = raw(tools=raw_tools("change", "echo"))
    async with opened(tmp_path, {"raw": upstream}) as portal:
        assert await portal.result_of("await raw.change(name='cancelled')") is None
        with anyio.fail_after(DEADLINE_SECONDS):
            names: list[str] = []
            while "raw.cancelled" not in names:
                names = [each["name"] for each in (await portal.search("raw.cancelled"))["functions"]]
        assert await portal.result_of("await raw.cancelled()") == []


async def test_two_upstreams_with_the_same_tools_are_told_apart(tmp_path: Path) -> None:
    left, right = Peer(), Peer()
    async with opened(tmp_path, {"left": left, "right": right}) as portal:
        code = "a = await left.echo(side='l')\nb = await right.echo(side='r')\n[a, b]"
        assert await portal.result_of(code) == [{"side": "l"}, {"side": "r"}]
    assert left.calls == [("echo", {"side": "l"})]
    assert right.calls == [("echo", {"side": "r"})]


async def test_a_disk_that_is_full_costs_the_check_and_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path, {"store": Peer(tool("echo"))}) as portal:
        await portal.search("echo")
        stubs = portal.portal.catalog._stubs
        shutil.rmtree(stubs)
        stubs.write_text("in the way")
        portal.portal.catalog.note_change(portal.portal.fleet["store"])
        assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
        assert not portal.portal.catalog.snapshot.is_on_disk

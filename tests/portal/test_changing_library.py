"""A running script sees the library that it was checked against, whatever changes meanwhile."""

from pathlib import Path

import anyio
import anyio.to_thread
from mcp_types import CallToolResult

from manifests.json_value import Json
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened, raw, raw_tools, states, text, tool

STRICT: Json = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
CHANGE = f"""
before = dir(raw)
await raw.change(name='flood')
await raw.change(name='cancelled', is_gone=True)
await raw.change(name='echo', schema={STRICT!r})
await gate.hold()
"""


class Gate:
    """A tool that answers once the portal has another library than at the start."""

    def __init__(self) -> None:
        self.portal: Opened | None = None
        self.peer = Peer(tool("hold"), hold=self._hold)

    async def _hold(self, arguments: dict[str, Json]) -> CallToolResult:
        assert self.portal is not None
        with anyio.fail_after(DEADLINE_SECONDS):
            while not await self._has_changed(self.portal):
                pass
        return text("changed")

    async def _has_changed(self, portal: Opened) -> bool:
        return "text: str" in await portal.search_text("raw.echo", detail="full", upstream="raw")


async def test_running_script_sees_the_library_it_was_checked_against(tmp_path: Path) -> None:
    gate = Gate()
    upstreams = {"raw": raw(tools=raw_tools("change", "echo", "cancelled")), "gate": gate.peer}
    async with opened(tmp_path, upstreams) as portal:
        await portal.search()
        gate.portal = portal
        seen = "[dir(raw) == before, hasattr(raw, 'flood'), await raw.echo(other=1), await raw.cancelled()]"
        answer = await portal.run(CHANGE + seen)
        assert (answer["status"], answer["result"]) == ("ok", [True, False, {"other": 1}, []])
        assert states(answer)[-2:] == [("raw.echo", "done"), ("raw.cancelled", "done")]
        # Whoever comes after it is held to the new one.
        assert (await portal.run("await raw.echo(other=1)"))["status"] == "refused"
        assert (await portal.run("await raw.cancelled()"))["status"] == "refused"
        now = "[hasattr(raw, 'flood'), hasattr(raw, 'cancelled'), await raw.echo(text='a')]"
        assert await portal.result_of(now) == [True, False, {"text": "a"}]

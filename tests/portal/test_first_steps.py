"""A portal that nobody configured answers, and says who can help."""

from pathlib import Path

from portal.base.errors import NO_UPSTREAMS
from tests.portal.peers import opened


async def test_both_tools_tell_who_can_help(tmp_path: Path) -> None:
    async with opened(tmp_path, {}) as portal:
        ran = await portal.run("1 + 1")
        absent = await portal.run("await tracker.create_issue()")
        found = await portal.search("anything")
    assert (ran["status"], ran["result"]) == ("ok", 2)
    assert absent["status"] == "refused"
    assert NO_UPSTREAMS in ran["notices"]
    assert found["notices"] == [NO_UPSTREAMS]

"""What needs a person, and since when, from the store and from the portal as it runs."""

from pathlib import Path

from portal.console.needs import approvals, of_portal
from portal.records.store.records import CallRow, short_id
from tests.portal.peers import DEADLINE_SECONDS, Peer, opened, tool
from tests.portal.pinning import accept
from tests.portal.rows import asked, begun
from tests.portal.rows import opened as tables_in
from tests.upstreams.oauth_peer import ProtectedServer


def test_approvals_are_those_of_the_runs_and_the_oldest_is_first(tmp_path: Path) -> None:
    file = tables_in(tmp_path)
    first, second, decided = begun(file), begun(file, owner="other"), begun(file)
    shown = b'{"question": "Is\\u202e it\\nfine?"}'
    call = CallRow(first.id, 2, "approve", "portal.approve", "waiting", shown=shown)
    with file.transaction():
        file.advance(first.id, first.epoch, calls=[call])
    asked(file, second, 7)
    asked(file, decided)
    with file.transaction():
        file.decide(decided.id, 1, "denied", b"{}", "cli")
    found = approvals(file, file.listed(is_asking=True))
    expected = [(first.id, 2, "Is it fine?"), (second.id, 7, "git.merge")]
    assert [(each.run, each.seq, each.what) for each in found] == expected
    assert 0 < found[0].at <= found[1].at <= file.now()
    assert found[1].do == f"mcp-code-portal ui {short_id(second.id)}"
    assert [each.run for each in approvals(file, [second])] == [second.id]
    file.close()


async def test_portal_needs_a_person_for_what_is_down_withheld_signed_out_or_changed(
    tmp_path: Path, own_state: None, server: ProtectedServer
) -> None:
    up = Peer(tool("read"), tool("write"))
    await accept(tmp_path, {"up": up})
    up.tools[0] = tool("read", description="Read more.")
    others = {"gone": {"command": "/bin/false"}, "tickets": {"url": server.url, "oauth": {}}}
    async with opened(tmp_path, {"up": up, **others}) as portal:
        await portal.portal.fleet.settled(DEADLINE_SECONDS)
        await portal.portal.catalog.fresh()
        portal.portal.views.waiting.append("portal.env")
        needs = {each.kind: each for each in of_portal(portal.portal)}
    config = f"--config {tmp_path}/portal.yaml"
    assert {kind: each.do for kind, each in needs.items()} == {
        "down": f"mcp-code-portal check {config}",
        "sign-in": f"mcp-code-portal login tickets {config}",
        "withheld": f"mcp-code-portal lock --diff {config}",
        "manifest": f"mcp-code-portal reload {config}",
    }
    assert needs["down"].what.startswith("gone: ") and "attempt" in needs["down"].what
    assert "up.read" in needs["withheld"].what and "up.write" not in needs["withheld"].what
    assert "portal.env" in needs["manifest"].what
    assert min(needs["down"].at, needs["sign-in"].at) > 0

"""An approval is for this call with these arguments of this definition, under the rules of the moment of the call."""

from pathlib import Path

import pytest

from manifests.json_value import Json
from portal.identity.approvers import Approvers, Decider
from portal.runs.decisions import RunsError, decide_call
from tests.portal.peers import Peer, opened, tool
from tests.portal.runs import rows
from tests.portal.runs.test_waiting import ASKS, answer_of, git, waiting

pytestmark = pytest.mark.anyio

RUNS: Json = {"store": "runs.sqlite", "park_after_seconds": 0.1}
CODE = """
try:
    found = await git.merge(id=7)
except ToolError as error:
    found = error.code
found
"""
CHANGES_ARGUMENTS = """
from dataclasses import replace

async def change(call, pass_on):
    return await pass_on(replace(call, arguments={"id": 8}))
"""


def decided(folder: Path, run: str) -> None:
    """A person approves while no portal runs."""
    file = rows.opened(folder)
    with file.transaction():
        decide_call(file, run, 1, Decider("ann"), Approvers(), is_approved=True)
    file.close()


@pytest.mark.parametrize(
    ("description", "sections", "code"),
    [
        ("", {"capabilities": ASKS}, None),
        ("", {"capabilities": {"tools": {"ask": ["git.merge"], "deny": ["git.merge"]}}}, "not_granted"),
        ("Merges, and deletes the branch.", {"capabilities": ASKS}, "tool_changed"),
        ("", {"capabilities": ASKS, "middleware": ["changing_arguments:change"]}, "arguments_changed"),
        ("", {}, None),
    ],
)
async def test_approval_counts_only_for_what_was_shown_and_is_still_allowed(
    tmp_path: Path, description: str, sections: dict[str, Json], code: str | None
) -> None:
    (tmp_path / "changing_arguments.py").write_text(CHANGES_ARGUMENTS)
    async with opened(tmp_path, {"git": git()}, capabilities=ASKS, runs=RUNS) as portal:
        run = (await waiting(portal, CODE))["run_id"]
    decided(tmp_path, run)
    peer = Peer(tool("merge", description=description) if description else tool("merge"), *git().tools[1:])
    async with opened(tmp_path, {"git": peer}, runs=RUNS, **sections) as portal:
        done = await answer_of(portal, run)
    assert done["result"] == (code or {"id": 7})
    assert peer.calls == ([] if code else [("merge", {"id": 7})])


async def test_run_that_expired_is_not_approved_any_more(tmp_path: Path) -> None:
    peer = git()
    async with opened(tmp_path, {"git": peer}, capabilities=ASKS, runs=RUNS) as portal:
        run = (await waiting(portal, CODE))["run_id"]
        store = portal.portal.runs.store_or_error()
        await store.write(lambda file: file.database.execute("UPDATE runs SET expires = 1"))
        portal.portal.runs.wake(run)
        answer = await answer_of(portal, run, until="expired")
        assert answer["error"]["code"] == "expired"
        with pytest.raises(RunsError) as error:
            await portal.portal.runs.decide(run, 1, Decider("ann"), is_approved=True)
        assert (error.value.code, peer.calls) == ("run_ended", [])

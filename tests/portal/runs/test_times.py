"""When a run and its calls began, however often it is resumed."""

from functools import partial
from pathlib import Path

from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.store.run_tables import RunTables
from portal.runs.past import Past, RunHead, new_row
from tests.portal.peers import opened
from tests.portal.runs.test_waiting import KEPT, approved, git, waiting

HEADED = RunHead(ExecuteCode("1"), LOCAL, None, began=100.0)


async def test_calls_that_are_made_again_keep_their_first_times(tmp_path: Path) -> None:
    async with opened(tmp_path, {"git": git()}, runs=KEPT) as portal:
        store = portal.portal.runs.store_or_error()
        run = (await waiting(portal, "await git.push(n=1)\nawait portal.approve('Go on?')"))["run_id"]
        first = await store.read(partial(RunTables.load, run=run))
        await approved(portal, run)
        last = await store.read(partial(RunTables.load, run=run))
    before, after = (Past.of(each)[1].entries for each in (first, last))
    assert [entry.at for entry in after.values()] == [entry.at for entry in before.values()]
    assert first.row.began <= before[1].at <= before[2].at


def test_a_run_began_when_its_script_did_and_a_fork_when_it_was_forked() -> None:
    own, fork = (new_row("run_1", "local", HEADED, parent, 1.0) for parent in (None, "run_0"))
    assert own.began == 100.0
    assert fork.began > 100.0 and own.expires > 86_400.0 + 100.0

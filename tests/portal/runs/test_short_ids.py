"""Runs, kept results and sessions are found by the first digits of their ids, if only one of the caller's begins so."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from manifests.json_value import Json
from portal.base.errors import RunsError
from portal.records.store.records import short_id
from portal.records.store.run_tables import RunTables
from portal.runs.decisions import find_run
from portal.runs.results import KeptResults
from tests.portal.peers import opened
from tests.portal.rows import Tables, begun, store_of
from tests.portal.rows import opened as tables_in

ONE, NEAR, FAR = (f"{digits:0<32}" for digits in ("3f2a9c1b", "3f2a9d", "77"))
NONE = ["", "3f2", "3F2A", "3f2z", "3f2%", "3f2a\n", "٣٣٣٣", "a\0b", "\ud800", "'; --"]
"""Ids that no row can have, and characters that Postgres cannot store."""


def found(file: RunTables, written: str, owner: str | None = "ann") -> str:
    """The digits of the run's id, or the code of the error."""
    try:
        return find_run(file, written, owner).id.removeprefix("run_")
    except RunsError as error:
        return error.code


def test_short_id_is_what_people_read() -> None:
    assert short_id(f"run_{ONE}") == short_id(f"kept_{ONE}") == short_id(ONE) == "3f2a9c1b"
    assert short_id(f"{FAR[:16]}.{ONE}") == f"{FAR[:16]}.3f2a9c1b"


@pytest.mark.parametrize("size", [4, 31, 32])
def test_run_is_found_by_its_beginning_with_and_without_its_kind(file: RunTables, size: int) -> None:
    begun(file, owner="ann", run=f"run_{ONE}")
    begun(file, owner="ann", run=f"run_{FAR}")
    assert found(file, ONE[:size]) == found(file, f"run_{ONE[:size]}") == ONE
    assert found(file, ONE[:size], None) == ONE


@pytest.mark.parametrize("written", [*NONE, "run_", "kept_3f2a"])
def test_what_is_no_beginning_is_unknown(file: RunTables, written: str) -> None:
    begun(file, owner="ann", run=f"run_{ONE}")
    assert found(file, written) == found(file, written, None) == "unknown_run"
    assert file.listed(written=written) == [] and not file.knows_hook(written)


def test_ambiguous_beginning_names_what_tells_the_callers_own_apart(file: RunTables) -> None:
    begun(file, owner="ann", run=f"run_{ONE}")
    assert found(file, "3f2a") == ONE
    begun(file, owner="bob", run="run_3f2a" + "0" * 28)
    assert found(file, "3f2a") == ONE
    begun(file, owner="ann", run=f"run_{NEAR}")
    with pytest.raises(RunsError) as error:
        find_run(file, "run_3f2a", "ann")
    assert error.value.code == "ambiguous_run" and str(error.value).endswith(": 3f2a9c, 3f2a9d")
    assert (found(file, "3f2a9c"), found(file, "3f2a9d"), found(file, ONE)) == (ONE, NEAR, ONE)
    assert (found(file, "3f2a0"), found(file, "3f2a", "bob")) == ("unknown_run", "3f2a" + "0" * 28)


def test_beginning_reads_neither_all_runs_nor_all_of_one_owner(tmp_path: Path) -> None:
    file, told = tables_in(tmp_path), list[str]()
    file.database._sql.set_trace_callback(told.append)
    for owner, tenant in (("local", None), ("local", ""), ("red//1", "red"), (None, None)):
        file.listed(owner, 2, tenant=tenant, written="3f2a")
    file.handles("3f2a", "local")
    file.database._sql.set_trace_callback(None)
    plans = [file.database.rows(f"EXPLAIN QUERY PLAN {query}")[0][3] for query in told]
    assert plans == [
        *["SEARCH runs USING INDEX sqlite_autoindex_runs_1 (id>? AND id<?)"] * 4,
        "SEARCH results USING INDEX sqlite_autoindex_results_1 (handle>? AND handle<?)",
    ]


def test_what_portals_look_for_all_the_time_reads_no_run_that_has_ended(tmp_path: Path) -> None:
    file, told = tables_in(tmp_path), list[str]()
    file.database._sql.set_trace_callback(told.append)
    file.left([None]), file.due(0.0, [None], 9), file.next_due(0.0), file.open_counts(), file.components()
    file.database._sql.set_trace_callback(None)
    plans = [each[3] for query in told for each in file.database.rows(f"EXPLAIN QUERY PLAN {query}")]
    indexes = [plan.partition(" INDEX ")[2].split()[0] for plan in plans if " runs USING" in plan]
    assert len(indexes) == len(told) and {*indexes} <= {"due", "held_runs", "open_runs", "open_runs_by_time"}


async def test_kept_result_is_recalled_by_its_beginning_with_its_sources(tables: Tables) -> None:
    carried = list[Sequence[str] | None]()
    file = tables()
    with file.transaction():
        for digits, owner in ((ONE, "ann"), (NEAR, "ann"), (FAR, "bob")):
            file.keep(f"kept_{digits}", owner, f'"{digits}"'.encode(), [owner])
    async with store_of(tables) as store:
        results = KeptResults(store, str)

        async def recalled(handle: Json, owner: str = "ann") -> Json:
            try:
                return await results.recall(handle, owner, carried.append)
            except RunsError as error:
                return error.code

        for handle in ("3f2a9c", "kept_3f2a9c", ONE, f"kept_{ONE}"):
            assert await recalled(handle) == ONE
        assert carried == [["ann"]] * 4
        assert (await recalled("7700", "bob"), await recalled("3f2a")) == (FAR, "ambiguous_handle")
        for handle in ("7700", f"kept_{FAR}", "run_3f2a9c", 7, None, *NONE):
            assert await recalled(handle) == "unknown_handle"
        hits = await results.search({"handle": "7700", "text": "77"}, "bob", carried.append)
        assert hits == [{"position": 0, "text": FAR}]


async def test_beginning_of_two_sessions_is_ambiguous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count()
    monkeypatch.setattr("sandbox_runtime.sandbox.secrets.token_hex", lambda size: f"3f2a{next(numbers):0>28}")
    async with opened(tmp_path) as portal:
        session = (await portal.run("x = 1", session="new"))["session"]
        answer = await portal.run("x", session="3f2a")
        assert (answer["result"], answer["session"]) == (1, session)
        await portal.run("x = 2", session="new")
        assert (await portal.error_of("x", session="3f2a"))["code"] == "ambiguous_session"
        assert (await portal.error_of("x", session="3f2"))["code"] == "unknown_session"

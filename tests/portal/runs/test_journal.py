"""The journal of a run: its content, its omissions, and the run if it cannot be written."""

import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from mcp_types import CallToolResult

from manifests.json_value import Json
from portal.records.store.records import DatabaseError, Seal, StoreError
from portal.records.store.run_tables import RunTables
from portal.runs.past import Past, dump_outcome, load_outcome
from portal.runs.workspaces import SharedWorkspace
from sandbox_runtime.call_port import CallError, Outcome
from tests.portal.peers import Peer, opened, states, structured, text
from tests.portal.rows import failing
from tests.portal.runs.test_waiting import KEPT, answer_of, approved, git, waiting

UNSAFE = """
async def push(n):
    try:
        return (await git.push(n=n))["n"]
    except ToolError as error:
        return error.code
"""
SECRET, GRANTED = "s3cret-of-the-upstream", "granted-to-scripts-alone"


def pushed(peer: Peer) -> list[Json]:
    return [arguments["n"] for name, arguments in peer.calls if name == "push"]


async def test_run_that_only_reads_writes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, {"git": git()}, runs=KEPT) as portal:
        store = portal.portal.runs.store_or_error()
        assert await portal.result_of("len([await git.status(n=n) for n in range(3)])") == 3
        assert await store.read(RunTables.last_log) == 0
        assert await portal.result_of("(await git.push(n=1))['n']") == 1  # its twin, which does not
        assert len(await store.read(RunTables.listed)) == 1


async def test_run_whose_record_is_too_long_makes_no_unsafe_call_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def long(arguments: dict[str, Json]) -> CallToolResult:
        return text("x" * 60_000)

    monkeypatch.setattr("sandbox_runtime.recording.MAX_RECORD_BYTES", 60_000)
    peer = git(status=long)
    async with opened(tmp_path, {"git": peer}, runs=KEPT) as portal:
        answer = await portal.run(
            f"{UNSAFE}\n[await push(1), len(await git.status()), await push(2), len(await git.status())]"
        )
        assert answer["result"] == [1, 60_000, "journal_limit", 60_000]
        assert states(answer)[2] == ("git.push", "refused")
        assert pushed(peer) == [1]
        kept = await answer_of(portal, answer["run_id"])
        assert kept["result"] == answer["result"]


async def test_without_room_for_the_journal_only_calls_that_may_be_repeated_are_made(tmp_path: Path) -> None:
    peer = git()
    async with opened(tmp_path, {"git": peer}, runs=KEPT) as portal:
        with failing(portal.portal.runs.store):
            answer = await portal.run(f"{UNSAFE}\n[await push(1), (await git.status(n=2))['n']]")
            begun = await portal.call("execute_code", code="await git.push()", background=True)
        assert answer["result"] == ["journal_failed", 2]
        assert states(answer) == [("git.push", "refused"), ("git.status", "done")]
        assert begun.structured_content["error"]["code"] == "journal_failed"
        assert pushed(peer) == []
        assert await portal.result_of(f"{UNSAFE}\nawait push(3)") == 3


FILES: Json = {"files": {"workspace": "work", "mode": "write", "share": "all"}}


async def test_run_that_ends_because_its_journal_cannot_be_written_does_not_say_that_it_did_nothing(
    tmp_path: Path,
) -> None:
    peer, new = git(), tmp_path / "work" / "new"
    new.parent.mkdir()
    async with opened(tmp_path, {"git": peer}, runs=KEPT, capabilities=FILES) as portal:
        with failing(portal.portal.runs.store, lambda rows: not rows.calls):
            answer = await portal.run("await git.push(n=1)\nopen('new', 'w').write('x')")
        assert (answer["error"]["code"], states(answer)[0]) == ("journal_failed", ("git.push", "done"))
        assert "Nothing was done" not in answer["error"]["hint"]
    assert pushed(peer) == [1] and not new.exists()


async def test_file_is_read_although_the_store_fails_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "given").write_text("given")
    sources, failures = SharedWorkspace.sources, [DatabaseError("away")]

    async def fail_once(self: SharedWorkspace, folder: str) -> set[str] | None:
        if failures:
            raise failures.pop()
        return await sources(self, folder)

    monkeypatch.setattr(SharedWorkspace, "sources", fail_once)
    async with opened(tmp_path, runs=KEPT, capabilities=FILES) as portal:
        assert await portal.result_of("open('given').read()") == "given"
    assert failures == []


def written(path: Path) -> bytes:
    """All that the store holds, unpacked."""
    files = [each for each in path.parent.glob(f"{path.name}*") if each.is_file()]
    seal, found = Seal(None), [each.read_bytes() for each in files]
    with sqlite3.connect(path) as sql:
        for (table,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in sql.execute(f"SELECT * FROM {table}"):
                for value in row:
                    found.append(str(value).encode())
                    if isinstance(value, bytes):
                        try:
                            found.append(seal.open(value))
                        except StoreError:
                            found.append(value)
    return b"\n".join(found)


async def test_secrets_are_not_written_and_the_run_goes_on_with_what_it_was_granted(tmp_path: Path) -> None:
    async def leak(arguments: dict[str, Json]) -> CallToolResult:
        return structured({"leaked": f"<{SECRET}>"})

    peer = git(push=leak)
    code = """
import os
print("in the output")
first, before = await git.push(n=1), os.environ["GRANTED"]
print(await git.push(n=2))
await portal.approve("Send " + first["leaked"] + "?")
await git.merge(size=len(os.environ["GRANTED"]), leaked=first)
[before == os.environ["GRANTED"], first, "too long " * 20_000 + first["leaked"]]
"""
    async with opened(
        tmp_path,
        {"git": peer},
        runs=KEPT,
        environ={"KEY": SECRET, "MINE": GRANTED},
        capabilities={"environment": {"GRANTED": "${MINE}"}},
        server={"tokens": [{"token": "${KEY}"}]},
    ) as portal:
        run = (await waiting(portal, code))["run_id"]
        parked = written(tmp_path / "runs.sqlite")
        done = await approved(portal, run)
        assert done["kept"].keys() == {"result"}
        ended = written(tmp_path / "runs.sqlite")
    name, arguments = peer.calls[-1]
    assert (name, arguments["size"]) == ("merge", len(GRANTED))
    assert b"[true,{" in ended
    for content in (parked, ended):
        assert b"in the output" in content  # it can be read at all
        assert SECRET.encode() not in content
        assert GRANTED.encode() not in content


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


def test_outcome_keeps_data_and_blocks() -> None:
    image: Json = {"type": "image", "data": "aGk="}
    for outcome in (
        Outcome({"n": 3}, content=[{"type": "text", "text": None}, image], beside=[1]),
        Outcome(error=CallError("tool_error", "no", "hint"), data={"code": 7}, content=[image]),
        Outcome([1]),
    ):
        _, read = load_outcome(dump_outcome("done", outcome))
        assert replace(read, beside=tuple(read.beside)) == replace(outcome, beside=tuple(outcome.beside))

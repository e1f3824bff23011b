"""One caller at full blast: another one gets its turn, session, check and place in the store, and loses nothing. The
harmless twin is in each: alone, or within its limit, a caller gets all there is.
"""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from manifests.grants import Limits
from manifests.json_value import Json
from manifests.kernels import PYTHON
from manifests.portal_manifest import ServerSettings
from portal.base.caller import Caller
from portal.catalog.check import language_server
from portal.catalog.check.checker import open_checker
from portal.catalog.check.language_server import TypeChecker
from portal.catalog.check.typescript_server import TypescriptServer, find_typescript
from portal.records.store.records import QuotaError
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase
from portal.records.store.writer import RunStore
from portal.runs import dispatcher
from portal.runs.past import new_run_id
from portal.runs.results import KeptResults
from portal.runs.sessions import NEW, SessionError, Sessions
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.run import MAX_SCRIPT_BYTES
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from tests.portal.catalog.check.small_library import library, prepared, snapshot, stubs
from tests.portal.kept_runs import ALICE, BOB, BOUND, kept_runs
from tests.portal.peers import DEADLINE_SECONDS, opened
from tests.portal.rows import begun
from tests.portal.rows import opened as tables_in
from tests.sandbox_runtime.running import EchoPort, where

pytestmark = pytest.mark.anyio

# Turns, and workers


async def test_endless_runs_leave_turns_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "MAX_DUE", 20)
    async with (
        kept_runs(tmp_path, tokens=BOUND) as kept,
        kept.client(**ALICE) as alice,
        kept.client(**BOB) as bob,
    ):
        assert (await alice.post("/runs?wait=30", json={"code": "ok"})).status_code == 200
        for _ in range(40):  # more than there are turns, and than wait in memory
            await alice.post("/runs", json={"code": "hang"})
        for _ in range(3):
            assert (await bob.post("/runs?wait=30", json={"code": "ok"})).status_code == 200


def test_due_runs_of_all_owners_are_looked_at_before_the_second_ones_of_any(tmp_path: Path) -> None:
    file = tables_in(tmp_path)
    owners = ["flood"] * 50 + ["one", "other"]
    runs = [begun(file, owner=owner).id for owner in owners]
    with file.transaction():
        for at, run in enumerate(runs):
            file.postpone_run(run, 1, float(at))
    found = file.due(time.time(), [None], 5)
    assert [*found.items()] == [(runs[at], owners[at]) for at in (0, 50, 51, 1, 2)]


@pytest.mark.parametrize("fixed", [2, None])
async def test_scripts_that_hang_leave_workers_to_others(fixed: int | None) -> None:
    async def run(sandbox: Sandbox, script: str, caller: str) -> Any:
        async with sandbox.run(Limits(), where, caller=caller) as one:
            await one.prepare(script, ("git",))
            return (await one.execute({}, EchoPort())).value

    async with open_sandbox(workers=fixed, progress=print) as sandbox, asyncio.timeout(DEADLINE_SECONDS):
        floods = [
            asyncio.create_task(run(sandbox, "await git.hangs()", caller))
            for caller in ("flood", "another flood")
            for _ in range(40)
        ]
        pool = sandbox._workers
        while pool.waiting.held.total() < pool.most:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert [await run(sandbox, "40 + 2", "neighbour") for _ in range(3)] == [42] * 3
        for flood in floods:
            flood.cancel()
        await asyncio.gather(*floods, return_exceptions=True)


# Sessions


@dataclass(eq=False)
class OpenedSession:
    id: str = field(default_factory=new_run_id)
    alive: bool = True

    def close(self) -> None:
        self.alive = False


class Opens:
    """Opens sessions without a process."""

    kernel = KERNELS[PYTHON]

    async def open_session(self) -> OpenedSession:
        return OpenedSession()


OPENS: Any = Opens()


def caller(name: str) -> Caller:
    return Caller(name, name)


async def hold(sessions: Sessions, name: str, until: anyio.Event, *, task_status: TaskStatus[None]) -> None:
    async with sessions.use(OPENS, NEW, caller(name)):
        task_status.started()
        await until.wait()


async def used(sessions: Sessions, name: str, identifier: str = NEW) -> str:
    async with sessions.use(OPENS, identifier, caller(name)) as session:
        assert session is not None
        return session.id


async def test_busy_sessions_of_two_callers_leave_one_to_a_third_who_keeps_it() -> None:
    sessions, until = Sessions(ServerSettings(sessions=4)), anyio.Event()
    async with anyio.create_task_group() as tasks:
        first = await used(sessions, "neighbour")
        for name in ("flood", "another"):
            while sessions._make_room(name):
                await tasks.start(hold, sessions, name, until)
            with pytest.raises(SessionError):
                await used(sessions, name)
        assert await used(sessions, "neighbour", first) == first, "it was not lost"
        for _ in range(5):  # each makes room for the next
            await used(sessions, "neighbour")
        assert len(sessions._busy) + len(sessions._idle) <= 8
        until.set()


async def test_idle_sessions_make_room_for_others_and_for_their_own_caller() -> None:
    sessions = Sessions(ServerSettings(sessions=2))
    first, second = [await used(sessions, "one") for _ in range(2)]
    third = await used(sessions, "one")
    with pytest.raises(SessionError):
        await used(sessions, "one", first)
    other = await used(sessions, "other")
    with pytest.raises(SessionError):
        await used(sessions, "one", second)
    assert [await used(sessions, "one", third), await used(sessions, "other", other)] == [third, other]


# The type checker

SLOW = "class A: pass\ndef f(x):\n" + "".join(
    f"    if isinstance(x, A) or not isinstance(x, (A, int)) or callable(x): x = [x, {n}]\n"
    for n in range(300)
)


async def test_only_whose_checks_take_long_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, wrong = library(), "r = await github.get_issue(number=1)\nr['nme'], {}"
    changed = stubs(tmp_path, of)
    async with open_checker(tmp_path) as checker:
        await checker.update(of, changed)

        async def codes(text: str, name: str) -> list[str]:
            return [each.code for each in await checker.check(prepared(text, of), snapshot(of), name)]

        assert await codes(wrong.format(0), "flood") == ["unknown_field"]
        monkeypatch.setattr(language_server, "MOST_OWED_SECONDS", 0.05)
        monkeypatch.setattr(language_server, "ANSWER_SECONDS", 0.2)
        assert await codes(f"{SLOW}await github.get_issue(number=1)", "flood") == ["unchecked"]
        monkeypatch.setattr(language_server, "ANSWER_SECONDS", 30.0)
        for number in range(1, 4):
            assert await codes(wrong.format(number), "neighbour") == ["unknown_field"]
            assert await codes(wrong.format(-number), "flood") == ["unchecked"]
        assert [*checker._types._paid_at] == ["flood"]
        checker._types._paid_at["flood"] = 0
        assert await codes(wrong.format(9), "flood") == ["unknown_field"]


async def test_a_long_script_is_checked_and_what_ended_the_type_checker_is_owed(tmp_path: Path) -> None:
    of = library()
    changed = stubs(tmp_path, of)
    async with open_checker(tmp_path) as checker:
        await checker.update(of, changed)
        text = "\n".join(["r = await github.get_issue(number=1)", "r['nme']", *["x = 1"] * 2000])
        found = await checker.check(prepared(text, of), snapshot(of), "one")
        assert [each.code for each in found] == ["unknown_field"]
        server = checker._types._server
        assert server is not None
        server._process.kill()
        await checker.check(prepared(text + "2", of), snapshot(of), "other")
        assert checker._types._paid_at["other"] > anyio.current_time()


# The store


def limited(folder: Path, quota_bytes: int) -> RunTables:
    return RunTables(SqliteDatabase(folder / "runs.sqlite"), None, "", quota_bytes)


def test_a_caller_over_its_quota_starts_and_keeps_nothing_but_its_runs_end(tmp_path: Path) -> None:
    file = limited(tmp_path, 5_000)
    run = begun(file, owner="flood")
    with file.transaction():
        file.keep("kept_1", "flood", bytes(range(256)) * 2, [])
        file.advance(run.id, run.epoch, chunk=new_run_id().encode() * 300, outcomes=[])
        file.keep("kept_2", "flood", str([*range(5000)]).encode(), [])
    for counts_anew in (False, True):
        with file.transaction():
            if counts_anew:
                file.count_kept()
            with pytest.raises(QuotaError):
                file.keep("kept_3", "flood", b"", [])
            file.keep("kept_1", "flood", b"", [])  # it is kept already
            file.keep(f"kept_of_another_{counts_anew}", "neighbour", b"1", [])
        with pytest.raises(QuotaError):
            begun(file, owner="flood")
        begun(file, owner="neighbour")
    with file.transaction():
        file.advance(run.id, run.epoch, chunk=b"more", n=2)
        assert file.finish(run.id, "ok", b"{}", run.epoch)
        file.sweep(time.time() + 10, 1.0)
    begun(file, owner="flood")


async def test_quota_is_told_with_its_limit(tmp_path: Path) -> None:
    runs: Json = {"store": "runs.sqlite", "quota_mib": 1}
    async with opened(tmp_path, runs=runs) as portal:
        noise = "import random\n[random.randbytes(1_500_000).hex()]"
        assert "kept" in await portal.run(noise)
        answer = await portal.run(noise)
        assert answer["status"] == "ok" and "kept" not in answer
        assert any("runs.quota_mib" in notice for notice in answer["notices"])
        result = await portal.call("execute_code", code="1", background=True)
        error = result.structured_content["error"]
        assert error["code"] == "quota_exceeded" and error["hint"]
        assert await portal.result_of("1 + 1") == 2


async def test_script_that_is_too_long_is_refused_before_it_is_written(tmp_path: Path) -> None:
    async with opened(tmp_path, runs={"store": "runs.sqlite"}) as portal:
        result = await portal.call("execute_code", code="#" * (MAX_SCRIPT_BYTES + 1), background=True)
        assert result.structured_content["error"]["code"] == "syntax_error"
        store = portal.portal.runs.store_or_error()
        assert await store.read(RunTables.listed) == []
    async with kept_runs(tmp_path) as kept, kept.client() as client:
        for code, status in (("é" * (MAX_SCRIPT_BYTES // 2 + 1), 400), ("ok #" + "x" * 1_000_000, 202)):
            assert (await client.post("/runs", json={"code": code})).status_code == status
        assert len((await client.get("/runs")).json()["runs"]) == 1


async def test_results_are_kept_one_at_a_time_in_turns_of_their_owners(tmp_path: Path) -> None:
    store, masked = RunStore(tables_in(tmp_path), tables_in(tmp_path)), list[str]()

    def mask(text: str) -> str:
        masked.append(text)
        return text

    results = KeptResults(store, mask)
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(results.keep, f"run_{number}", "result", "flood", number, [])
        tasks.start_soon(results.keep, "run_9", "result", "neighbour", 9, [])
    await store.close()
    assert masked == ["0", "1", "9", "2", "3"]


BOMBS = {
    "nested brackets": "[" * 30_000 + "]" * 30_000,
    "a long chain": "x" + ".y" * 40_000,
    "open elements": "<a>" * 20_000,
    "a recursive type": (
        "type A<T, N extends any[] = []> = N['length'] extends 999 ? N : A<T, [...N, T]>; let x: A<A<A<1>>>"
    ),
    "template literal types": "type D = 0|1|2|3|4|5|6|7|8|9; "
    + "".join(f"type U{n} = `${{D}}${{D}}${{D}}${{D}}{n}`; " for n in range(200))
    + f"let x: Exclude<{'|'.join(f'U{n}' for n in range(200))}, `1${{string}}`>",
    "a distributive type": "type X<A, B, C> = A extends 0 ? 1 : B extends 0 ? 1 : C extends 0 ? 1 : [A, B, C]; "
    + "type N = "
    + "|".join(map(str, range(1, 200)))
    + "; let x: X<N, N, N>",
}


@pytest.mark.anyio
@pytest.mark.skipif(find_typescript() is None, reason="the extra `typescript` is not installed")
@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS.keys())
async def test_a_script_that_typescript_never_finishes_is_owed_by_its_caller(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = TypeChecker(tmp_path, TypescriptServer)
    try:
        assert await types.findings([], "1", "bomber") == []
        monkeypatch.setattr(language_server, "ANSWER_SECONDS", 0.5)
        assert await types.findings([], text, "bomber") is None
        monkeypatch.undo()
        found = await types.findings([], "export const x: string = 5", "neighbour")
        assert [each.rule for each in found or []] == ["2322"]
        assert [*types._paid_at] == ["bomber"]
    finally:
        await types.close()

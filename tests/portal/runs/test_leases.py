"""Leases: how long a portal may go on without a heartbeat, and what it does then."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from portal.catalog.authority import Permit
from portal.records.ledger import Entry
from portal.records.store.places import present
from portal.records.store.records import FencedError
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import LEASE_SECONDS
from portal.runs.leases import Address, Leases
from tests.portal.peers import DEADLINE_SECONDS, opened, states
from tests.portal.rows import Tables, alive, begun, store_of
from tests.portal.runs.test_waiting import git
from tests.sandbox_runtime.fetching import redirect, served
from upstreams.supervisor import Availability


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_portal_that_was_silent_holds_its_run_again_unless_another_one_has_it(
    tables: Tables, is_taken: bool
) -> None:
    now = 0.0
    with present(tables.path) as holder:
        async with store_of(tables, holder=holder) as store:
            leases, run = Leases(store, clock=lambda: now), begun(alive(tables(holder=holder)))
            now = LEASE_SECONDS - 0.1
            assert leases.is_holding
            now = LEASE_SECONDS
            assert not leases.is_holding
            if is_taken:
                await store.write(partial(RunTables.claim, run=run.id))  # another epoch, whoever has it
                with pytest.raises(FencedError):
                    await leases.hold(run.id, run.epoch, 0)
            else:
                await leases.hold(run.id, run.epoch, 0)
            assert leases.is_holding != is_taken


@pytest.mark.parametrize(("is_silent", "beats"), [(True, False), (True, True), (False, True)])
async def test_call_that_waited_for_its_upstream_is_not_sent_once_another_portal_may_have_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_silent: bool, beats: bool
) -> None:
    arrived, may_go, take, peer = anyio.Event(), anyio.Event(), Availability.take, git()

    async def slow_take(self: Availability, *until: float) -> Any:
        arrived.set()
        await may_go.wait()
        return await take(self, *until)

    async with opened(tmp_path, {"git": peer}, runs={"store": "runs.sqlite"}) as portal:
        await portal.search()  # which waits for the upstream
        leases = portal.portal.runs.leases
        clock: Callable[[], float] = leases.clock
        monkeypatch.setattr(Availability, "take", slow_take)
        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:

                async def go_on() -> None:
                    await arrived.wait()
                    if is_silent:
                        leases.clock = lambda: clock() + LEASE_SECONDS
                    if beats:
                        await leases.beat()
                    may_go.set()

                tasks.start_soon(go_on)
                answer = await portal.run("await git.push(n=1)")
    if is_silent:
        assert (answer["error"]["code"], states(answer)) == ("journal_failed", [("git.push", "refused")])
    assert peer.calls == ([] if is_silent else [("push", {"n": 1})])


async def test_a_portal_tells_the_others_at_once_where_it_is_reached(tables: Tables) -> None:
    with present(tables.path) as holder:
        async with store_of(tables, holder=holder) as store:
            await Leases(store, Address("replica", 8080)).beat()
            assert await store.read(lambda file: file.replica_url(holder)) == "http://replica:8080"


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (Address("127.0.0.1", 80), "http://127.0.0.1:80"),
        (Address("::1", 80), "http://[::1]:80"),
        (Address("0.0.0.0", 80), "http://10.0.0.7:80"),
        (Address("::", 80), "http://10.0.0.7:80"),
    ],
)
def test_address_is_that_of_the_database_where_a_portal_listens_everywhere(
    address: Address, url: str
) -> None:
    assert address.url(SimpleNamespace(address="10.0.0.7")) == url


async def test_redirect_of_a_request_that_was_sent_is_followed_whatever_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Permit.sent
    async with served() as server:
        server.answers["/go"] = redirect(f"{server.base}/a")
        network = {"private": [f"127.0.0.1:{server.port}"]}
        runs = {"store": "runs.sqlite"}
        async with opened(tmp_path, runs=runs, capabilities={"network": network}) as portal:
            leases = portal.portal.runs.leases
            clock: Callable[[], float] = leases.clock

            def lapse(self: Permit, entry: Entry) -> None:
                sent(self, entry)
                leases.clock = lambda: clock() + LEASE_SECONDS

            monkeypatch.setattr(Permit, "sent", lapse)
            code = f'(await portal.fetch("{server.base}/go", method="POST")).status'
            assert await portal.result_of(code) == 200

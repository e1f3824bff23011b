"""Leases: how long a portal may go on without a heartbeat, and what it does then."""

from functools import partial
from types import SimpleNamespace

import pytest

from portal.records.store.places import present
from portal.records.store.records import FencedError
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import LEASE_SECONDS
from portal.runs.leases import Address, Leases
from tests.portal.rows import Tables, alive, begun, store_of

pytestmark = pytest.mark.anyio


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
                    await leases.hold(run.id, run.epoch)
            else:
                await leases.hold(run.id, run.epoch)
            assert leases.is_holding != is_taken


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

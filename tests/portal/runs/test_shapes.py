"""What results look like is learnt by one replica and known to the next."""

from pathlib import Path

import pytest

from portal.library.observed import Observations, Observed, shape_of
from portal.records.store.writer import RunStore
from portal.runs.shapes import SharedShapes
from tests.portal.runs.rows import Tables

pytestmark = pytest.mark.anyio


async def test_two_replicas_share_what_they_learnt(tables: Tables, tmp_path: Path) -> None:
    stores = [RunStore(tables(), tables()) for _ in range(2)]
    first, second = (Observations(SharedShapes(store)) for store in stores)
    for replica, tool in ((first, "get"), (second, "list")):
        replica._known["tickets"] = {tool: Observed("digest", shape_of({"id": 1}, {}))}
        replica._unsaved.add("tickets")
        await replica.save()
    third = Observations(SharedShapes(stores[0]))
    await third.load(["tickets", "unknown"])
    assert {*third.of("tickets")} == {"get", "list"}
    assert third.of("unknown") == {}
    for store in stores:
        await store.close()

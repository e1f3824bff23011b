"""What is learnt of tools whose definitions change while scripts run."""

import asyncio
from pathlib import Path

import anyio
import pytest

from portal.observed.observations import Observations, open_observations
from portal.observed.reading import shape_of
from portal.observed.shape_store import Observed, ShapeStore
from tests.portal.library.sample_tools import function

pytestmark = pytest.mark.anyio

FORMER, CURRENT = function(description="Former."), function(description="Current.")
DEFINITIONS = {CURRENT.tool: CURRENT.digest}


async def test_a_late_result_of_a_former_definition_changes_nothing(tmp_path: Path) -> None:
    observations = Observations(ShapeStore(tmp_path / "kept", "here"))
    observations.define("tickets", DEFINITIONS)
    for function_, value in ((CURRENT, {"id": 1}), (FORMER, {"key": 1})):
        observations.note(function_, None, value)
        observations.learn()
    observations.define("tickets", DEFINITIONS)
    assert CURRENT.digest is not None
    assert observations.of("tickets") == {CURRENT.tool: Observed(CURRENT.digest, shape_of({"id": 1}))}
    await observations.save()
    assert [*ShapeStore(tmp_path / "kept", "here").load("tickets")] == [CURRENT.tool]


async def test_what_was_learnt_of_a_former_definition_is_forgotten(tmp_path: Path) -> None:
    observations = Observations(ShapeStore(tmp_path / "kept", "here"))
    observations.define("tickets", {FORMER.tool: FORMER.digest})
    observations.note(FORMER, None, {"key": 1})
    observations.learn()
    await observations.save()
    observations.define("tickets", DEFINITIONS)
    assert observations.of("tickets") == {}
    await observations.save()
    assert ShapeStore(tmp_path / "kept", "here").load("tickets") == {}


async def test_a_result_is_looked_at_after_its_answer_is_on_its_way(tmp_path: Path) -> None:
    happened, learnt = [], anyio.Event()

    def learns() -> None:
        happened.append("learnt")
        learnt.set()

    async with open_observations(ShapeStore(tmp_path / "kept", "here")) as observations:
        observations.define("tickets", DEFINITIONS)
        observations.listen(learns)
        await anyio.wait_all_tasks_blocked()
        observations.note(CURRENT, None, {"id": 1})
        asyncio.get_running_loop().call_soon(happened.append, "answered")
        await learnt.wait()
    assert happened == ["answered", "learnt"]

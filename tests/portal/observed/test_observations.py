"""What is learnt of tools whose definitions change while scripts run."""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from manifests.json_value import Json
from portal.library.observed import Observations, Observed, ShapeStore, mismatch, open_observations, shape_of
from tests.portal.library.sample_tools import function

FORMER, CURRENT = function(description="Former."), function(description="Current.")
INTEGER: Json = {"type": "integer"}
PERSON: Json = {"type": "object", "properties": {"age": INTEGER}}


@pytest.mark.anyio
async def test_a_result_of_another_definition_replaces_what_was_learnt(tmp_path: Path) -> None:
    observations = Observations(ShapeStore(tmp_path / "kept", "here"))
    for function_, value in ((FORMER, {"key": 1}), (CURRENT, {"id": 1})):
        observations.note(function_, None, value)
        await observations.learn()
    assert CURRENT.recorded.digest is not None
    assert observations.of("tickets") == {
        CURRENT.tool: Observed(CURRENT.recorded.digest, shape_of({"id": 1}))
    }
    await observations.save()
    assert [*ShapeStore(tmp_path / "kept", "here").load("tickets")] == [CURRENT.tool]


@pytest.mark.anyio
async def test_a_result_is_looked_at_after_its_answer_is_on_its_way(tmp_path: Path) -> None:
    happened, learnt = [], anyio.Event()

    def learns() -> None:
        happened.append("learnt")
        learnt.set()

    async with open_observations(ShapeStore(tmp_path / "kept", "here")) as observations:
        observations.listen(learns)
        await anyio.wait_all_tasks_blocked()
        observations.note(CURRENT, None, {"id": 1})
        asyncio.get_running_loop().call_soon(happened.append, "answered")
        await learnt.wait()
    assert happened == ["answered", "learnt"]


@pytest.mark.anyio
async def test_what_a_cancelled_save_did_not_reach_is_saved_by_the_next(tmp_path: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()

    class SlowStore(ShapeStore):
        def save(self, upstream: str, tools: Mapping[str, Observed]) -> None:
            begun.set()
            assert may_end.wait(10)
            super().save(upstream, tools)

    store = SlowStore(tmp_path / "kept", "here")
    observations = Observations(store)
    for upstream in ("one", "two"):
        observations.note(replace(CURRENT, upstream=upstream), None, {"id": 1})
    await observations.learn()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(observations.save)
        await anyio.to_thread.run_sync(begun.wait, 10)
        tasks.cancel_scope.cancel()
        may_end.set()
    await observations.save()
    assert store.load("one") and store.load("two")


def mismatch_of(properties: Json, value: Json, **words: Json) -> str:
    return mismatch(function(None, {"type": "object", "properties": properties, **words}), value)


def test_keys_that_the_schema_names_are_told() -> None:
    whole = {"people": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/P"}}, {"type": "null"}]}}
    found = mismatch_of(whole, {"people": [{"age": "x"}]}, **{"$defs": {"P": PERSON}})
    assert found.startswith("['people'][]['age'] is a str")
    inner = mismatch_of({"one": {"$ref": "#/$defs/P"}}, {"one": {"age": "x"}}, **{"$defs": {"P": PERSON}})
    assert inner.startswith("['one']['age'] is a str")
    pair = mismatch_of({"pair": {"prefixItems": [PERSON]}}, {"pair": [{"age": "x"}]})
    assert pair.startswith("['pair'][]['age'] is a str")


@pytest.mark.parametrize(
    "words", [{"additionalProperties": INTEGER}, {"allOf": [{"additionalProperties": INTEGER}]}]
)
def test_keys_that_are_data_are_not_told(words: dict[str, Json]) -> None:
    assert mismatch_of({}, {"alice": "x"}, **words).startswith("[...] is a str")

"""Result types are learned while scripts run, and stored on disk: private, bounded, and robust."""

import asyncio
import stat
import threading
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from manifests.json_value import Json
from portal.library.observed import (
    MAX_FILE_BYTES,
    Observations,
    Observed,
    ShapeStore,
    mismatch,
    open_observations,
    shape_of,
)
from tests.portal.library.sample_tools import function

FORMER, CURRENT = function(description="Former."), function(description="Current.")
INTEGER: Json = {"type": "integer"}
PERSON: Json = {"type": "object", "properties": {"age": INTEGER}}


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


@pytest.mark.parametrize("texts", [["[1]"] * 3, ["gone", *["[1]"] * 6], ["[1]", "[1]", "12", *["[1]"] * 6]])
async def test_text_that_was_json_three_times_is_data_and_one_that_was_none_before_stays_a_text(
    tmp_path: Path, texts: list[str]
) -> None:
    saying = function(None, {"type": "string"})
    observations = Observations(ShapeStore(tmp_path / "kept", "here"))
    for each in texts:
        observations.note(saying, None, each)
    await observations.learn()
    assert (observations.of("tickets")[saying.tool].data_since < inf) is (len(texts) == 3)


async def test_a_result_is_looked_at_after_its_answer_is_on_its_way(tmp_path: Path) -> None:
    happened, learnt = [], anyio.Event()

    def learns() -> None:
        happened.append("learnt")
        learnt.set()

    async with open_observations(ShapeStore(tmp_path / "kept", "here")) as observations:
        observations.listen(learns)
        while not observations._woken.statistics().tasks_waiting:
            await anyio.lowlevel.checkpoint()
        observations.note(CURRENT, None, {"id": 1})
        asyncio.get_running_loop().call_soon(happened.append, "answered")
        await learnt.wait()
    assert happened == ["answered", "learnt"]


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


def observed(value: Json, definition: str = "d1") -> Observed:
    return Observed(definition, shape_of(value))


def store(folder: Path, scope: str = "/etc/portal") -> ShapeStore:
    return ShapeStore(folder / "observed", scope)


def only_file(folder: Path) -> Path:
    [file] = (folder / "observed").glob("*.json")
    return file


def test_what_was_learnt_is_there_the_next_time(tmp_path: Path) -> None:
    tools = {"list": observed([{"id": 1}]), "get": observed({"id": 1, "tags": []})}
    store(tmp_path).save("tickets", tools)
    assert store(tmp_path).load("tickets") == tools
    assert store(tmp_path).load("other") == {}
    assert store(tmp_path, "/elsewhere").load("tickets") == {}


def test_only_this_user_can_read_it_and_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    store(tmp_path).save("tickets", {"list": observed([1])})
    folder = tmp_path / "observed"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    folder.chmod(0o777)
    assert store(tmp_path).load("tickets") == {}
    with pytest.raises(PermissionError):
        store(tmp_path).save("tickets", {})


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[" * 100_000,
        lambda text: '{"format": 2, "tools": {"get": {"definition": 3, "shape": 4}, "list": null}}',
        lambda text: text + " " * MAX_FILE_BYTES,
        lambda text: "\udcff\udcfe",
    ],
)
def test_a_damaged_file_costs_what_was_in_it_and_no_more(tmp_path: Path, damage: Any) -> None:
    tools = {"get": observed({"id": 1})}
    store(tmp_path).save("tickets", tools)
    file = only_file(tmp_path)
    file.write_text(damage(file.read_text()), errors="surrogateescape")
    assert all(not each.shape.get("properties") for each in store(tmp_path).load("tickets").values())
    store(tmp_path).save("tickets", tools)
    assert store(tmp_path).load("tickets") == tools


def test_two_portals_at_once_keep_what_both_learnt(tmp_path: Path) -> None:
    one, other = store(tmp_path), store(tmp_path)
    one.save("tickets", {"get": observed({"id": 1, "a": 1}), "list": observed([1])})
    other.save("tickets", {"get": observed({"id": 1, "b": ""}), "find": observed("x")})
    kept = one.load("tickets")
    assert set(kept) == {"get", "list", "find"}
    assert kept["get"].shape["required"] == ["id"]
    assert set(kept["get"].shape["properties"]) == {"id", "a", "b"}


def test_a_file_is_bounded_and_the_latest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.library.observed.MAX_FILE_BYTES", 2_000)
    store(tmp_path).save("tickets", {f"tool_{number}": observed({"first": 1}) for number in range(50)})
    assert only_file(tmp_path).stat().st_size <= 2_000
    kept = store(tmp_path).load("tickets")
    assert "tool_49" in kept and "tool_0" not in kept

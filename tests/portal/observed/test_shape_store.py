"""Shapes on disk: private, bounded, and nothing that anybody may break."""

import stat
from pathlib import Path
from typing import Any

import pytest

from manifests.json_value import Json
from portal.library.observed import MAX_FILE_BYTES, Observed, ShapeStore, shape_of


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


def test_only_this_user_can_read_it(tmp_path: Path) -> None:
    store(tmp_path).save("tickets", {"list": observed([1])})
    assert stat.S_IMODE((tmp_path / "observed").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "observed").iterdir()} == {0o600}


def test_a_folder_that_others_can_write_is_neither_read_nor_written(tmp_path: Path) -> None:
    store(tmp_path).save("tickets", {"list": observed([1])})
    (tmp_path / "observed").chmod(0o777)
    assert store(tmp_path).load("tickets") == {}
    with pytest.raises(PermissionError):
        store(tmp_path).save("tickets", {})


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[" * 100_000,
        lambda text: text.replace("properties", "propreties").replace("type", "tpye"),
        lambda text: '{"format": 99, "tools": {}}',
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


def test_a_shape_of_another_definition_is_replaced_not_merged(tmp_path: Path) -> None:
    store(tmp_path).save("tickets", {"get": observed({"id": 1}, "d1")})
    store(tmp_path).save("tickets", {"get": observed({"key": 1}, "d2")})
    assert store(tmp_path).load("tickets") == {"get": observed({"key": 1}, "d2")}


def test_a_file_is_bounded_and_the_latest_stays(tmp_path: Path) -> None:
    names = [f"{chr(97 + number)}o" for number in range(26)]
    large = {
        name: {f"some_{inner}_name": 1 for inner in names[: 5 + at % 10]} for at, name in enumerate(names)
    }
    many = {f"tool_{number}": observed({**large, "first": 1}) for number in range(1_000)}
    store(tmp_path).save("tickets", many)
    assert only_file(tmp_path).stat().st_size <= MAX_FILE_BYTES
    kept = store(tmp_path).load("tickets")
    assert "tool_999" in kept
    assert "tool_0" not in kept

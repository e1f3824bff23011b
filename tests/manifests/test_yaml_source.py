"""YAML: data and places for what is reasonable, a ManifestError for the rest, nothing else for anything."""

import math

import pytest
import yaml

from manifests import loader
from manifests.errors import ManifestError, Place
from manifests.loader import read_yaml


@pytest.fixture(params=["libyaml", "python"])
def both_parsers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some platforms have PyYAML without libyaml."""
    if request.param == "python":
        monkeypatch.delattr(yaml, "CBaseLoader", raising=False)


SCALARS: list[tuple[str, object]] = [
    ("off", "off"), ("no", "no"), ("true", True), ("~", None), ("''", ""), ("12", 12), ("0x1F", 31),
    ("1_000", "1_000"), ("2026-01-31", "2026-01-31"), ("1e3", 1000.0), (".inf", ".inf"), ('"12"', "12"),
    ("9" * 5000, "9" * 5000), ("1e999999", math.inf),
]  # fmt: skip


@pytest.mark.usefixtures("both_parsers")
def test_scalars_mean_what_editors_take_them_for() -> None:
    assert [(text, read_yaml(f"key: {text}\n").data["key"]) for text, _ in SCALARS] == SCALARS


@pytest.mark.usefixtures("both_parsers")
def test_places_are_those_of_keys_and_values() -> None:
    source = read_yaml("a:\n  bé: [x,\n    12]\n")
    assert source.places[("a",)] == Place(1, 1, 2, 3)
    assert source.places["a", "bé"] == Place(2, 3, 2, 7)
    assert source.places["a", "bé", 0] == Place(2, 8, 2, 8)
    assert source.places["a", "bé", 1] == Place(3, 5, 3, 5)


@pytest.mark.usefixtures("both_parsers")
def test_alias_stands_for_its_anchor() -> None:
    source = read_yaml("a: &rules {allow: [x]}\nb: *rules\n")
    assert source.data == {"a": {"allow": ["x"]}, "b": {"allow": ["x"]}}
    assert source.places[("b",)].line == 2
    assert source.places["b", "allow"].line == 1
    assert not source.problems


@pytest.mark.parametrize(("text", "line", "column"), [
    ("a: [1\nb: 2\n", 2, 2), ("a: b: c\n", 1, 5), ("\ta: 1\n", 1, 1), ("a: {T: ${X}}\n", 1, 9),
    ("a: 1\n---\nb: 2\n", 2, 1), ("a: *nowhere\n", 1, 4), ("a: &loop [*loop]\n", 1, 4),
    ("a: 1\nb: \x07\n", 2, 4),
])  # fmt: skip
@pytest.mark.usefixtures("both_parsers")
def test_what_is_no_yaml_is_one_problem_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(ManifestError) as caught:
        read_yaml(text)
    [problem] = caught.value.problems
    assert (problem.line, problem.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "line", "column"), [("a: 1\na: 2\n", 2, 1), ("? [a, b]\n: x\n", 1, 3), ("? {a: b}\n: x\n", 1, 3)]
)
@pytest.mark.usefixtures("both_parsers")
def test_what_is_yaml_but_no_manifest_is_noted(text: str, line: int, column: int) -> None:
    source = read_yaml(text + "last: 1\n")
    [problem] = source.problems
    assert (problem.line, problem.column) == (line, column)
    assert source.data["last"] == 1


LAUGHS = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]


@pytest.mark.parametrize("text", ["\n".join(["l0: &l0 [x, x, x]", *LAUGHS]), f"[{'1, ' * 1_000}1]"])
def test_values_that_are_too_many_also_by_aliases_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(loader, "MAX_NODES", 1_000)
    with pytest.raises(ManifestError):
        read_yaml(text)


@pytest.mark.parametrize("text", [
    "[" * 100_000, "{a: " * 50_000, "- " * 100_000,
    "a: &a [[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]\nb: [[[[[[[[[[[[[[*a]]]]]]]]]]]]]]\n",
])  # fmt: skip
def test_what_is_too_deep_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        read_yaml(text)

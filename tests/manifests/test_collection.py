"""The garbage collector goes on while long JSON is read time and again."""

import gc
import json
import weakref
from collections.abc import Callable, Iterator

import pytest

from manifests.collection import long_text
from sandbox_runtime.guest_json import parse
from upstreams.json_pieces import without_collection

MANY_LISTS = b"[" + b",".join([b"[]"] * 30_000) + b"]"
ONE_STRING = b'"' + b"x" * 30_000 + b'"'


@pytest.fixture(autouse=True)
def usual_thresholds() -> Iterator[None]:
    """A portal that served in this process before set others."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def few_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifests.collection._MOVES_BEFORE_COLLECTION", 5)
    monkeypatch.setattr("manifests.collection._MOST_MOVES", 50)


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("read", [parse, lambda text: without_collection(json.loads, text)])
@pytest.mark.parametrize("text", [MANY_LISTS, ONE_STRING])
def test_garbage_does_not_stay_however_much_is_read(read: Callable[[bytes], object], text: bytes) -> None:
    gc.collect()
    knot = weakref.ref(Knot())
    for _ in range(1000):
        read(text)
        Knot()
        kept = [[] for _ in range(50)]  # what a portal makes of each answer
        if knot() is None:
            break
    assert knot() is None, kept


def test_objects_of_a_long_text_are_not_looked_at() -> None:
    gc.collect()
    before = gc.get_stats()
    value = parse(MANY_LISTS)
    assert [each["collections"] for each in gc.get_stats()] == [each["collections"] for each in before], value


@pytest.mark.usefixtures("few_moves")
def test_nothing_is_collected_in_the_midst_of_long_texts_for_long() -> None:
    gc.collect()
    knot = weakref.ref(Knot())
    with long_text():
        for _ in range(20):
            parse(MANY_LISTS)
        assert knot() is not None
    with long_text():
        assert knot() is None


@pytest.mark.usefixtures("few_moves")
def test_collector_has_its_turn_when_there_is_always_a_long_text() -> None:
    gc.collect()
    knot = weakref.ref(Knot())
    with long_text():
        for _ in range(50):
            parse(MANY_LISTS)
        assert knot() is None

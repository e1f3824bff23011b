import numpy as np

from portal.search.name_terms import NameTerms
from portal.search.shelf import Shelf
from tests.portal.search.catalogue import Function


def _listing(number: int) -> list[Function]:
    return [Function("tracker", f"read_thing{number}x{each}") for each in range(20)]


def test_terms_of_names_that_are_gone_are_forgotten() -> None:
    shelf, names = Shelf[Function](), NameTerms()
    for number in range(30):
        shelf, change = shelf.changed({"tracker": _listing(number)})
        names = names.changed(change)
    first, change = Shelf[Function]().changed({"tracker": _listing(29)})
    anew = NameTerms().changed(change)
    assert len(names) <= 2 * len(anew)
    assert sorted(names.rarities(20, len(shelf))) == sorted(anew.rarities(20, len(first)))


def test_terms_keep_their_numbers_while_most_are_in_use() -> None:
    shelf, change = Shelf[Function]().changed({"tracker": _listing(0)})
    names = NameTerms().changed(change)
    shelf, change = shelf.changed({"tracker": _listing(0)[:-1]})
    assert len(names.changed(change)) == len(names)
    assert np.all(names.rarities(20, 20) > 0)

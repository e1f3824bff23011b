"""Other words for what functions do and what they do it to: `delete_issue` is found by "remove ticket".

A server calls its functions by the words of its own trade; somebody who asks in those of another means the same. Such a
word counts where it stands in a function's name, and less than the word that was asked for.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from portal.search.words import terms_of

# In each line any word may stand for any other.
_ACTIONS = """
list show browse enumerate
search find query lookup
get fetch read retrieve view describe show
create add new make insert
update edit modify change
delete remove drop destroy erase
send post deliver
run execute
download export
upload import
"""
_OBJECTS = """
issue ticket bug
repository repo project
message mail email
folder directory
image picture photo
user member account person
event meeting appointment
comment note reply
label tag
channel room
database db
document doc file
task todo
price cost quote
organization org company
website site url
"""

_MOST = 0.7
_SHARED = 1.5
_MAX_CHARS = 50


def role_terms(words: Sequence[str], rarity: Callable[[str], float | None]) -> dict[str, float]:
    """Terms that may stand for the words in a function's name, and how much each counts where a word counts 1.

    The more words there are, the less is left to guess: of a long query every one counts little. `rarity` says how much
    it tells that a term occurs, None of one that does not: where many functions get and few describe, `describe_table`
    must not be a better answer to "get table" than `get_table` is.
    """
    most = min(_MOST, _SHARED / max(len(words), 1))
    weights: dict[str, float] = {}
    for word in dict.fromkeys(words):
        own = rarity(word)
        for other in _EQUIVALENTS.get(word, ()):
            if (others := rarity(other)) is not None:
                weight = most if own is None else most * min(1.0, own / others)
                weights[other] = max(weights.get(other, 0.0), weight)
    return weights


def _equivalents(lines: Sequence[str]) -> Mapping[str, frozenset[str]]:
    others: defaultdict[str, set[str]] = defaultdict(set)
    for line in lines:
        terms = {term for word in line.split() for term in terms_of(word, _MAX_CHARS)}
        for term in terms:
            others[term] |= terms - {term}
    return {term: frozenset(each) for term, each in others.items()}


_EQUIVALENTS = _equivalents([*_ACTIONS.split("\n"), *_OBJECTS.split("\n")])
ACTIONS = frozenset(_equivalents(_ACTIONS.split("\n")))

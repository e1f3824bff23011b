"""What a function's name says beside its terms: the words that terms leave out, and that it says no more.

"in", "off" and "like" say nothing in a description. In a name they may be all that tells `turn_on_light` from
`turn_off_light`, `like_post` from `share_post` and `celsius_to_fahrenheit` from its opposite. They are phrases there,
with the word beside each. Phrases begin with a blank: no term does.
"""

from dataclasses import dataclass
from itertools import pairwise

from portal.search.stopwords import ASKING, STOPWORDS
from portal.search.words import parts_of, stem

_SILENT = frozenset(
    {"a", "an", "the", "my", "your", "our", "his", "her", "its", "their", "this", "that", "these", "those"}
)
"""What may stand between two words of a phrase: "like this post"."""

_PARTICLES = frozenset({"in", "off", "on", "out", "up", "down"})
"""They are phrases by themselves too: "turn the light off"."""

_SMALL = (STOPWORDS | ASKING) - _SILENT
_MAX_WORDS = 256
_LONGEST_NAME = 16
"""Words of one: who asks with more does not ask for a name."""


@dataclass(frozen=True, slots=True)
class Phrases:
    """`small` has the small words with their neighbours. `whole` is one phrase for all that the text says.

    Names and queries share it if their words are the same: "get the tables", `getTable`. It is empty if there are none.
    """

    small: tuple[str, ...]
    whole: str


def is_phrase(term: str) -> bool:
    return term.startswith(" ")


def phrases_of(text: str, max_chars: int) -> Phrases:
    """Of the text's first `max_chars` characters."""
    words = [word for word in parts_of(text, max_chars) if word not in _SILENT][:_MAX_WORDS]
    small = {f" {word}": None for word in words if word in _PARTICLES}
    for first, second in pairwise(words):
        if first in _SMALL or second in _SMALL:
            small[f" {stem(first)} {stem(second)}"] = None
    said = {stem(word) for word in words if word not in STOPWORDS} if len(words) <= _LONGEST_NAME else ()
    return Phrases(tuple(small), f"  {' '.join(sorted(said))}" if said else "")

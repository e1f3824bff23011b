"""Counts tokens of o200k_base, whatever text it is given."""

import re
from collections.abc import Iterator

from portal.budget.encoding import o200k_base

_CHUNK_CHARS = 32_768
"""tiktoken panics on a million spaces in a row, and slows down on a long run of anything."""

# Behind an ASCII letter or digit and before one of these, o200k_base always ends a piece, so that counts of the two
# sides add up exactly. An apostrophe is not among them ("don't" is one piece).
_PIECE_END = re.compile(r"[A-Za-z0-9](?=[\x00-&(-/:-@\[-`{-\x7f])")
_PIECE_END_WITHIN = 512


def count_tokens(text: str) -> int:
    """The text's tokens. Exact, or within one or two per 32,768 characters that have no word boundary.

    Linear: at most 0.6 µs per character.
    """
    return sum(map(_tokens, _chunks(text)))


def is_within(text: str, max_tokens: int) -> bool:
    """Whether the text has at most so many tokens; a text of no more bytes than that is not even looked at."""
    if len(text) <= max_tokens and len(text.encode("utf-8", "replace")) <= max_tokens:
        return True
    tokens = 0
    for chunk in _chunks(text):
        tokens += _tokens(chunk)
        if tokens > max_tokens:
            return False
    return True


def _tokens(chunk: str) -> int:
    return len(o200k_base().encode_ordinary(chunk))


def _chunks(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _CHUNK_CHARS:
        end = start + _CHUNK_CHARS
        ends = [match.end() for match in _PIECE_END.finditer(text, end - _PIECE_END_WITHIN, end + 1)]
        end = ends[-1] if ends else end
        yield text[start:end]
        start = end
    yield text[start:]

"""Counts o200k_base tokens of any text.

This package contains the ranks; nothing is downloaded or written.

Source: `tiktoken_ext/openai_public.py` of tiktoken (MIT), whose own loader downloads the ranks.
"""

import json
import lzma
import re
import threading
from binascii import a2b_base64
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tiktoken import Encoding

BYTES_OF_TOKEN: Final = 3.6
"""An estimate, where counting would need the texts."""

_LOADING = threading.Lock()
_SPECIAL_TOKENS = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
_PIECE = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

_CHUNK_CHARS = 32_768
"""tiktoken panics on a million spaces in a row, and slows down on long runs of one character class."""

# o200k_base always splits between an ASCII letter or digit and one of these, so the counts of both sides add up
# exactly. The apostrophe is excluded ("don't" is one piece).
_PIECE_END = re.compile(r"[A-Za-z0-9](?=[\x00-&(-/:-@\[-`{-\x7f])")
_PIECE_END_WITHIN = 512


compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""JSON as clients get it and as tokens are counted: no spaces, Unicode unescaped."""


def count_tokens(text: str) -> int:
    """Count the tokens of the text. Exact, or off by one or two per 32,768 characters without a word boundary.

    Linear: at most 0.6 µs per character.
    """
    return sum(map(_tokens, _chunks(text)))


def is_within(text: str, max_tokens: int) -> bool:
    """Whether the text has at most `max_tokens` tokens. A text of that many bytes or fewer is not tokenized."""
    if len(text) <= max_tokens and len(text.encode("utf-8", "replace")) <= max_tokens:
        return True
    return all(tokens <= max_tokens for tokens in accumulate(map(_tokens, _chunks(text))))


def o200k_base() -> "Encoding":
    """The encoding, loaded on first use. Loading takes 0.3 s and 80 MB; portals with small answers never load it."""
    with _LOADING:  # else threads that need it at the same time would each load one
        return _loaded()


@cache
def _loaded() -> "Encoding":
    from tiktoken import Encoding  # takes 60 ms, so not at the start

    return Encoding("o200k_base", pat_str=_PIECE, mergeable_ranks=_ranks(), special_tokens=_SPECIAL_TOKENS)


def is_loaded() -> bool:
    """Whether the encoding is loaded. Load it in a thread: loading blocks for 0.3 s."""
    return _loaded.cache_info().currsize > 0


def _ranks() -> dict[bytes, int]:
    packed = files("portal.base").joinpath("o200k_base.tiktoken.xz").read_bytes()
    words = lzma.decompress(packed).split()  # decompressing verifies the checksum
    return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


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

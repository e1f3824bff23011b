"""The tokenizer o200k_base, from the ranks that travel with this package: nothing is fetched, nothing is written.

Source: `tiktoken_ext/openai_public.py` of tiktoken (MIT), whose own loader downloads the ranks.
"""

import hashlib
import lzma
from binascii import a2b_base64
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

_RANKS = "o200k_base.tiktoken.xz"
_RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
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


@cache
def o200k_base() -> "Encoding":
    """Loaded on first use: 0.3 s and 80 MB that a portal with small answers never pays."""
    from tiktoken import Encoding  # 60 ms, not at start

    return Encoding("o200k_base", pat_str=_PIECE, mergeable_ranks=_ranks(), special_tokens=_SPECIAL_TOKENS)


def is_loaded() -> bool:
    """Whether it was used before. The first use holds an event loop for its 0.3 s: have a thread do it."""
    return o200k_base.cache_info().currsize > 0


def _ranks() -> dict[bytes, int]:
    data = lzma.decompress(files("portal.budget").joinpath(_RANKS).read_bytes())
    if hashlib.sha256(data).hexdigest() != _RANKS_SHA256:
        raise RuntimeError(f"{_RANKS} is not the file this portal was released with; install it again")
    words = data.split()
    return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))

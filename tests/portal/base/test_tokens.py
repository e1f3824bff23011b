import lzma
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha1
from importlib.resources import files
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from portal.base import tokens
from portal.base.tokens import count_tokens, o200k_base

_PROSE = "It isn't 1234 o'clock,\n\tbut `f(x) == {'a': [1.5, \"été\"]}` … 世界 🙂 — CamelCase snake_case\r\n\r\n   "


def test_tokens_are_those_of_tiktoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = lzma.decompress(files("portal.base").joinpath("o200k_base.tiktoken.xz").read_bytes())
    address = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    (tmp_path / sha1(address.encode()).hexdigest()).write_bytes(ranks)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs = tiktoken.get_encoding("o200k_base")
    assert o200k_base().encode_ordinary(_PROSE) == theirs.encode_ordinary(_PROSE)
    assert o200k_base().special_tokens_set == theirs.special_tokens_set
    assert o200k_base().n_vocab == theirs.n_vocab


@given(st.lists(st.sampled_from([*_PROSE.split(" "), "a" * 40, " ", "'s", '","', "12", "\n"]), min_size=1))
def test_long_text_is_counted_in_parts_exactly(words: list[str]) -> None:
    text = " ".join([*words, "end "])
    text *= 40_000 // len(text) + 1
    assert count_tokens(text) == len(o200k_base().encode_ordinary(text))


def test_a_million_spaces_and_many_lone_surrogates_are_counted() -> None:
    assert count_tokens(" " * 1_000_000) > 1_000
    assert count_tokens("\ud800" * 40_000) > 1_000


def test_threads_that_need_the_encoding_first_load_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[None] = []
    monkeypatch.setattr(tokens, "_loaded", cache(lambda: (loads.append(None), time.sleep(0.1), object())[-1]))
    with ThreadPoolExecutor(8) as threads:
        assert len({id(each) for each in threads.map(lambda _: o200k_base(), range(8))}) == 1
    assert len(loads) == 1

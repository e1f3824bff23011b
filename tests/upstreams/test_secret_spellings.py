"""Secrets are found in whatever way a message for people spells them."""

import json
import sys
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.upstreams.json_writers import as_dotnet_writes, as_go_writes, as_php_writes, unit_by_unit
from upstreams.scrubber import Scrubber
from upstreams.secret_spellings import Spelling, Spellings

SECRET = 'it\'s \\a "s\u00e9cret"\tof/odd+signs% & <more>=\U0001f511'
SHORT = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
CHARACTERS = "/\"\\+=&%'<> \u00e9\U0001f511\n\x01u2Fa-"


def as_gson_writes(text: str) -> str:
    """Gson of Java."""
    return as_go_writes(text).replace("=", "\\u003d").replace("'", "\\u0027")


def as_properties(text: str) -> str:
    return "".join(f"\\{each}" if each in "\\ =:#!" else each for each in text)


def as_node_quotes(text: str) -> str:
    """Node's URLSearchParams and Java's URLEncoder."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def quoted_in_lower_case(text: str) -> str:
    return "".join(quote(each, safe="").lower() if quote(each, safe="") != each else each for each in text)


WRITERS = [json.dumps, as_go_writes, as_dotnet_writes, as_php_writes, as_gson_writes]


@pytest.mark.parametrize("outer", [str, *WRITERS], ids=lambda outer: outer.__name__)
@pytest.mark.parametrize(
    "inner",
    [str, repr, quote, quote_plus, as_node_quotes, quoted_in_lower_case, as_properties, *WRITERS],
    ids=lambda inner: inner.__name__,
)
def test_secret_is_hidden_whoever_wrote_it_down(
    inner: Callable[[str], str], outer: Callable[[str], str]
) -> None:
    told, other = (outer(f"no: {inner(each)}!") for each in (SECRET, SECRET.replace("more", "less")))
    scrub = Scrubber([SECRET])
    assert scrub(told).count("[hidden]") == 1
    assert not any(part in scrub(told) for part in ("it", "cret", "odd", "more", "003d", "3D"))
    assert scrub(other) == other


@st.composite
def written(draw: st.DrawFn, text: str) -> str:
    """The text by somebody who spells each character that is no letter as they like."""
    spellings = []
    for each in text:
        unit, escape = unit_by_unit(each, upper=draw(st.booleans())), "\\" + SHORT.get(each, each)
        ways = [
            each,
            escape,
            "\\" + escape,
            unit,
            "\\" + unit,
            quote(each, safe=""),
            quote(each, safe="").lower(),
        ]
        spellings.append(each if _is_plain(each) else draw(st.sampled_from(ways)))
    return "".join(spellings)


def _is_plain(character: str) -> bool:
    return character == "-" or (character.isascii() and character.isalnum())


@given(st.data(), st.text(st.sampled_from(CHARACTERS.replace("\\", "")), min_size=4, max_size=20))
def test_secret_is_hidden_however_each_of_its_characters_is_spelled(data: st.DataObject, secret: str) -> None:
    text = data.draw(written(f"x{secret}x"))
    assert Scrubber([f"x{secret}x"])(f"<{text}>") == "<[hidden]>"


@given(st.data(), st.text(st.sampled_from(CHARACTERS.replace("\n", "\t")), min_size=60, max_size=120))
def test_what_is_all_but_a_secret_is_looked_at_in_one_way(data: st.DataObject, secret: str) -> None:
    text = data.draw(st.sampled_from([quote(secret), json.dumps(json.dumps(secret)), secret * 20]))
    assert Scrubber([secret + "Q"])(text + "q") == text + "q"


def test_secret_within_another_leaves_nothing_of_the_longer_one() -> None:
    scrub = Scrubber(["/abcd", "/abcd/efgh", "abcd", "abcdefgh", "%2Fabcd/ef"])
    assert scrub("\\/abcd\\/efgh abcdefgh %2fabcd%2fef /abcd abcd") == "[hidden] " * 4 + "[hidden]"


@given(st.data(), st.text(st.sampled_from(CHARACTERS.replace("\\", "") + "5"), min_size=150, max_size=300))
def test_long_secret_is_hidden_to_its_end_however_each_of_its_characters_is_spelled(
    data: st.DataObject, secret: str
) -> None:
    text = data.draw(written(f"x{secret}x"))
    assert Scrubber([f"x{secret}x"])(f"<{text}>") == "<[hidden]>"


@pytest.mark.parametrize("inner", WRITERS, ids=lambda inner: inner.__name__)
def test_what_begins_like_a_long_secret_is_hidden_as_far_as_it_goes_on(inner: Callable[[str], str]) -> None:
    secret = json.dumps([{"key": f"a/b{number}"} for number in range(100)])
    half, other = inner(f"no: {secret[:500]}")[:-1], inner(f"no: {secret[:100]} and so on")
    scrub = Scrubber([secret])
    assert scrub(half).startswith(inner("no: ")[:-1] + "[hidden]") and "key" not in scrub(half)
    assert scrub(other) == other


def test_long_secret_is_hidden_where_its_beginning_stands_in_it_again() -> None:
    for secret in ("A" * 300 + "the-rest", '"/' * 75 + "the-rest"):
        assert Scrubber([secret])(f"<{secret[:2]}{secret} {secret[:100]}{secret}>") == "<[hidden] [hidden]>"


def test_secret_that_begins_where_another_ends_is_hidden_whole() -> None:
    scrub = Scrubber(["abcd/efgh", "efgh/ijkl"])
    assert scrub("abcd/efgh/ijkl abcd/efgh-efgh/ijkl") == "[hidden] [hidden]-[hidden]"


def test_long_secret_costs_no_more_than_a_short_one_to_be_hidden() -> None:
    def hide(count: int) -> None:
        scrub = Scrubber([json.dumps([{"key": f"abc{number}"} for number in range(count)])])
        scrub.hide_for_now([json.dumps({f"abc{number}": True for number in range(count)})])
        assert scrub('no: [{"key": "abc0"}]') == 'no: [{"key": "abc0"}]'

    hide(10)  # what is remembered for all secrets
    assert _calls(lambda: hide(2_000)) < _calls(lambda: hide(20)) + 40_000


@pytest.mark.parametrize("secret", ['"' * 1_000, '"/' * 500 + "?"])
def test_text_full_of_what_is_all_but_a_secret_is_looked_at_a_few_times(secret: str) -> None:
    scrub = Scrubber([secret])
    scrub(secret)
    text = f"{secret[:-1]}#" * 20
    assert _calls(lambda: scrub(text)) < 100 * len(text)


def lines(*each: str, count: int = 400) -> str:
    return "\n".join(line.format(number) for number in range(count) for line in each)


WORDS = [
    "tickets.example-company.com",
    "alpha",
    "beta",
    "gamma",
    "a/",
    '"',
    "=",
    "x" * 130,
    "{0}",
    "{0}",
    " ",
]


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=2, max_size=6), min_size=1, max_size=3),
    st.sampled_from([0, 1, 20, 400]),
    st.lists(st.sampled_from([*WORDS[:-3], "17", " "]), max_size=12),
    st.booleans(),
)
def test_work_of_a_text_is_bounded_whatever_it_and_the_lines_of_secrets_have_in_common(
    line: list[list[str]], count: int, text: list[str], is_secret: bool
) -> None:
    secret = lines(*map("".join, line), count=count)
    said = secret if is_secret else "".join(text) * 2_000
    scrub = Scrubber([secret])
    assert _calls(lambda: scrub.start(said)) < 400_000


def test_lines_that_are_alike_are_looked_for_by_what_the_others_do_not_have() -> None:
    scrub = Scrubber([lines('"svc{0}": "https://tickets.example-company.com/1"')])
    text = "GET https://tickets.example-company.com/1 200\n" * 2_000
    assert _calls(lambda: scrub.content(text)) < 10_000
    assert scrub.content(text) == text
    assert scrub.start(text) == text[:2_000] + "\u2026"
    assert scrub('no "svc17": "https://tickets.example-company.com/1"!') == "no [hidden]!"


def test_text_that_would_take_too_long_is_hidden_as_a_whole() -> None:
    scrub = Scrubber([lines("x" * 130 + "{0}")])
    assert scrub.start("x" * 4_000) == "[hidden]"
    assert scrub.start("x" * 63 + " at 17") == "x" * 63 + " at 17"


def test_text_that_would_take_too_long_is_hidden_as_a_whole_whichever_places_count() -> None:
    symbols = Spellings([Spelling("$$$$")], is_place=lambda *_: False)
    assert symbols.places("a$$$$b" * 100, most_work=1) == [(0, 600)]
    assert symbols.places("a$$$$b" * 100) == []


def test_secrets_without_latin_letters_cost_nothing_where_a_text_has_none_of_their_characters() -> None:
    secret = "\n".join(
        f"\u5317\u4eac\u8def{chr(0x6000 + number)}\u53f7\u4e0a\u6d77\u5e02" for number in range(200)
    )
    scrub, text = Scrubber([secret]), "the server said why at some length, \u5317 " * 1_000
    assert scrub.start(text) == text[:2_000] + "\u2026"
    assert scrub.content(text) == text
    line = secret.splitlines()[7]
    for spelled in (
        line,
        quote(line),
        quote(line).lower(),
        json.dumps(line),
        json.dumps(line).upper().replace("U", "u"),
    ):
        assert scrub(f"no {spelled}!") in ("no [hidden]!", 'no "[hidden]"!')


def _calls(work: Callable[[], object]) -> int:
    """How many calls of functions it takes."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count

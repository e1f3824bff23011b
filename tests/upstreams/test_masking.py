"""Credentials are taken out of JSON however its writer spells their characters, and nothing else is."""

import json
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.upstreams.json_writers import as_dotnet_writes, as_go_writes, as_php_writes, unit_by_unit
from upstreams.masking import CredentialMask
from upstreams.steps import STEP_BYTES, Steps

TOKEN: Final = "tok+EN&se<cret>'x\"y/z\u00e9-0123456789\U0001f511"
SHORT: Final = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "/": "/", '"': '"', "\\": "\\"}


def masked(text: str, *credentials: str) -> str:
    return done(CredentialMask(credentials)(text.encode("utf-8", "surrogatepass"))).decode()


def done(steps: Steps[bytes]) -> bytes:
    """What comes of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: bytes = end.value
            return value


WRITERS: Final = [
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
    as_go_writes,
    as_dotnet_writes,
    as_php_writes,
]


@pytest.mark.parametrize("outer", WRITERS)
@pytest.mark.parametrize("inner", [None, *WRITERS])
@pytest.mark.parametrize(
    "credential",
    [TOKEN, "abcdefghij+klmnop/qrst/uvwx==", "p&ssword-of-the-database", "plain0123456789abcdef"],
)
def test_credential_is_hidden_whoever_wrote_the_json_it_is_in(
    credential: str, inner: Callable[[str], str] | None, outer: Callable[[str], str]
) -> None:
    around = 'a+b & "c" <d>/\u00e9\\u002b{}\n'
    said = [around.format(each) for each in (credential, "[hidden]")]
    text, hidden = (outer(inner(each) if inner else each) for each in said)
    assert masked(f'{{"seen":[{text}],"n":1.5}}', credential) == f'{{"seen":[{hidden}],"n":1.5}}'
    assert masked(text, credential[::-1]) == text


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """The text as the inside of a JSON string, each character in any of its spellings."""
    spellings = []
    for character in text:
        ways = [unit_by_unit(character, upper=draw(st.booleans()))]
        if character in SHORT:
            ways.append("\\" + SHORT[character])
        if character not in '"\\' and character >= " ":
            ways.append(character)
        spellings.append(draw(st.sampled_from(ways)))
    return "".join(spellings)


@st.composite
def credential_and_json(draw: st.DrawFn) -> tuple[str, str, str]:
    """A credential, a text with it, and JSON that says the text."""
    characters = st.sampled_from('aZ09u/+&"\\\n\u00e9\u4e2d\U0001f511\x01bn')
    credential = draw(st.text(characters, min_size=16, max_size=24)) + "Q"
    # A backslash before it may be part of it, in a text within.
    before = draw(st.text(characters, max_size=3)).rstrip("\\")
    after = draw(st.text(characters, max_size=3))
    within = draw(st.booleans())
    text = f"{before}{credential}{after}"
    said = f'{{"k": "{draw(spelled(text))}"}}' if within else text
    return credential, said, f'{{"r": "{draw(spelled(said))}", "more": "\\u0041"}}'


@given(credential_and_json())
def test_no_spelling_of_a_credential_leaves_a_character_of_it(given: tuple[str, str, str]) -> None:
    credential, said, text = given
    assert json.loads(text)["r"] == said
    left = json.loads(masked(text, credential))
    assert left["more"] == "A"
    if said.startswith('{"k"') and said.endswith('"}'):
        left["r"] = json.loads(left["r"])["k"]
        said = json.loads(said)["k"]
    assert left["r"].replace("[hidden]", credential) == said
    assert "[hidden]" in left["r"]


@given(st.text(st.sampled_from('\\\\\\u0025bB"/n,é+'), max_size=60))
def test_whatever_an_upstream_sends_stays_as_it_is_without_a_credential(text: str) -> None:
    assert masked(text, 'a+b/c\\d"e\u00e9-0123456789') == text


def test_credential_that_begins_with_what_another_is_leaves_nothing_of_either() -> None:
    user, both = "user+0123456789abcd", "user+0123456789abcd:pass&word"
    assert masked(f'["{as_dotnet_writes(both)[1:-1]} {user}"]', user, both) == '["[hidden] [hidden]"]'
    assert masked(f'["{both}"]', user, both) == '["[hidden]"]'


@pytest.mark.parametrize("before", range(STEP_BYTES - 40, STEP_BYTES + 2))
def test_credential_is_hidden_between_steps(before: int) -> None:
    credential = "0123456789abcdef+0123456789"
    text = f'["{"x" * before}{as_dotnet_writes(credential)[1:-1]}"]'
    assert masked(text, credential) == f'["{"x" * before}[hidden]"]'


def test_object_that_says_what_a_credential_does_is_no_credential() -> None:
    credential = '{"kind": "a\\u002bb of 0123456789"}'
    text = f'{{"seen": {credential}, "shown": {json.dumps(credential)}, "as": "\\/"}}'
    assert json.loads(masked(text, credential)) == {**json.loads(text), "shown": "[hidden]"}


def test_long_string_is_looked_through_in_steps_and_has_others_wait_for_none() -> None:
    credential = "0123456789abcdef+0123456789"
    text = f'["{(as_dotnet_writes(credential)[1:-1] + " ") * 10_000}"]'
    steps = CredentialMask([credential])(text.encode())
    assert len([*steps]) >= 10
    assert masked(text, credential) == f'["{"[hidden] " * 10_000}"]'


def test_text_with_more_of_them_than_are_looked_for_is_not_read() -> None:
    credential = "0123456789abcdef+0123456789"
    with pytest.raises(ValueError, match="more credentials"):
        masked(f'["{as_dotnet_writes(credential)[1:-1] * 100_001}"]', credential)

"""Credentials are taken out of JSON however its writer spells their characters, and nothing else is."""

import json
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.upstreams.at_once import at_once, counted
from tests.upstreams.json_writers import as_dotnet_writes, as_go_writes, as_php_writes, unit_by_unit
from upstreams.masking import CredentialMask
from upstreams.steps import STEP_BYTES

TOKEN: Final = "tok+EN&se<cret>'x\"y/z\u00e9-0123456789\U0001f511"
SHORT: Final = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "/": "/", '"': '"', "\\": "\\"}


def masked(text: str, *credentials: str) -> str:
    return at_once(CredentialMask(credentials)(text.encode("utf-8", "surrogatepass"))).decode()


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
    """The text as the inside of a JSON string, each character in any of its spellings, or by a writer who has some of
    them as \\uXXXX at most.
    """
    units = draw(st.sampled_from([text, '+&"/\n\u00e9\U0001f511', "n", ""]))
    spellings = []
    for character in text:
        ways = []
        if character in units or (character < " " and character not in SHORT):
            ways.append(unit_by_unit(character, upper=draw(st.booleans())))
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
    return credential, said, f'{{"r": "{draw(spelled(said))}", "more": "\\u0047"}}'


@given(credential_and_json())
def test_no_spelling_of_a_credential_leaves_a_character_of_it(given: tuple[str, str, str]) -> None:
    credential, said, text = given
    assert json.loads(text)["r"] == said
    left = json.loads(masked(text, credential))
    assert left["more"] == "G"
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


@pytest.mark.parametrize("end", ["", "\\n"])
def test_long_text_is_looked_through_for_many_credentials_in_steps(end: str) -> None:
    credentials = [f"credential-{number:06}" for number in range(50)]
    text = f'["{"credential-" * (20 * STEP_BYTES // 11)}{credentials[7]}{end}"]'
    left, steps = counted(CredentialMask(credentials)(text.encode()))
    assert left.decode() == text.replace(credentials[7], "[hidden]")
    assert steps >= 20


def test_text_with_more_of_them_than_are_looked_for_is_not_read() -> None:
    credential = "0123456789abcdef+0123456789"
    with pytest.raises(ValueError, match="more credentials"):
        masked(f'["{as_dotnet_writes(credential)[1:-1] * 100_001}"]', credential)


@st.composite
def surroundings(draw: st.DrawFn) -> str:
    """The inside of a JSON string without a credential, in which no escape goes on behind it."""
    around = draw(st.text(st.sampled_from('aZ09u/"\\\n\u00e9\U0001f511b'), max_size=4))
    if draw(st.booleans()):
        around = draw(spelled(around))
    return draw(spelled(around)) * draw(st.sampled_from([1, 50, 500])) + " "


@given(surroundings(), credential_and_json(), surroundings(), st.sampled_from([1, 2, 20]))
def test_credential_is_hidden_in_long_text_as_in_short(
    before: str, given: tuple[str, str, str], between: str, times: int
) -> None:
    credential, _, text = given
    hidden = masked(text, credential)
    assert masked(f"{before}{text}{between}" * times, credential) == f"{before}{hidden}{between}" * times


def test_credential_without_its_first_character_is_none_behind_an_escape_that_ends_with_it() -> None:
    credential = "n0123456789/abcdef"
    said = r'["\n0123456789\/abcdef \\\n0123456789\/abcdef %s"]'
    assert masked(said % r"\\n0123456789\/abcdef", credential) == said % r"\\[hidden]"


@pytest.mark.parametrize(
    "row", [r"0.1\t0.2\n", r"<\/td>\"\n", r"\u0022a\u0022\n", r"mcp.example.com\/x\/y\n"]
)
def test_long_text_is_read_that_has_far_more_escapes_than_can_be_looked_at(row: str) -> None:
    credential = 'https://mcp.example.com/"0123456789"/feed'
    rows = row * (2_200_000 // row.count("\\"))
    said = [f'["{rows} {each} {rows}"]' for each in (as_php_writes(credential)[1:-1], "[hidden]")]
    assert masked(said[0], credential) == said[1]


def test_text_with_a_credential_in_every_line_is_read() -> None:
    credential = "postgres://portal:0123456789@db.example/main"
    line = r"\t0.1\t0.2\t0.3\t0.4\t0.5\t0.6" * 20 + r"\n"
    assert masked(f'["{(credential + line) * 10_000}"]', credential) == f'["{("[hidden]" + line) * 10_000}"]'


@pytest.mark.parametrize(
    "row", ["\\u005c", "\\\\", "0", "0123456789abcdef", "\\/0123456789abcde", "\\u002f "]
)
def test_text_made_to_be_hard_to_look_through_is_looked_through_in_steps(row: str) -> None:
    credential = "/0123456789abcdef/\\\\\\\\\\\\/"
    text = f'["{row * (20 * STEP_BYTES // len(row))} {as_php_writes(credential)[1:-1]}"]'
    steps = CredentialMask([credential])(text.encode())
    assert len([*steps]) >= 20


@st.composite
def credential_and_near_match(draw: st.DrawFn) -> tuple[str, str, str]:
    """A credential, most of whose characters have several spellings, JSON that says all of it but for its end, however
    often, and what it says.
    """
    characters = st.sampled_from('/"\\+=&\u00e9\U0001f511\n\x01u0a')
    credential = "k" + draw(st.text(characters, min_size=60, max_size=120)) + "Q"
    said = draw(st.sampled_from([credential[:-1] + "q", f"{credential[:-1]} ", credential[1:-1] * 3]))
    if draw(st.booleans()):
        said = json.dumps({"k": said})
    units = " ".join(
        unit_by_unit(each, upper=False) for each in draw(st.sampled_from([credential, '/"+=&', ""]))
    )
    return credential, said, f'{{"r": "{draw(spelled(said))}", "more": "{units}Q0123456789"}}'


@pytest.mark.timeout(60)  # with two ways to read each of its characters it would take 2^60 steps
@given(credential_and_near_match())
def test_what_is_all_but_a_credential_is_looked_at_in_one_way(given: tuple[str, str, str]) -> None:
    credential, said, text = given
    assert json.loads(text)["r"] == said
    assert masked(text, credential) == text


@pytest.mark.timeout(60)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "piece", ["/", '"', "\\/", '\\"', "\\u0041", "\\\\", "+=&", "\u00e9", "\U0001f511", "\n"]
)
def test_tool_that_says_all_of_a_credential_but_its_end_holds_nobody_up(
    piece: str, writer: Callable[[str], str]
) -> None:
    credential = f"begin {piece * 60} end"
    near = json.dumps([writer(credential[:-1]), writer(writer(credential[:-1])), credential])
    assert json.loads(masked(near, credential))[:2] == json.loads(near)[:2]

"""Text of strangers is mended without touching what was whole."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCNotification, JSONRPCRequest
from pydantic_core import from_json

from manifests.upstream_sections import HttpUpstream, StdioUpstream
from tests.upstreams.at_once import at_once, counted
from upstreams.scrubber import Scrubber
from upstreams.sent_text import awaits_answer, given_up_id
from upstreams.steps import STEP_BYTES
from upstreams.wire_text import MAX_HALVES, answered_id, mended

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
)


@given(JSON, st.booleans())
def test_whole_json_is_not_touched(value: object, ensure_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ensure_ascii).encode()
    assert at_once(mended(text)) == text


@given(st.text(st.characters(codec=None)), st.booleans())  # with half surrogates
def test_mended_json_is_always_utf8_and_keeps_its_length(value: str, nested: bool) -> None:
    text = json.dumps([value] if nested else value)
    read = json.loads(at_once(mended(text.encode())))
    read.encode() if isinstance(read, str) else read[0].encode()
    # Two halves that stand side by side become one character on reading; nothing else changes the length.
    assert len(json.dumps(read)) == len(text)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (r'"\ud83d\ude00"', r'"\ud83d\ude00"'),
        (r'"\ud83d\ud83d\ude00\ude00"', r'"\ufffd\ud83d\ude00\ufffd"'),
        (r'"\ud83dx\\ud83d\\\ud83d"', r'"\ufffdx\\ud83d\\\ufffd"'),
        (r'"\\ud83d\ude00"', r'"\\ud83d\ufffd"'),
        (r'"\n\ud55c\u00e9\uD83D"', r'"\n\ud55c\u00e9\ufffd"'),
        ('no JSON: \\ud8\n"\\ud83d" \\', 'no JSON: \\ud8\n"\\ufffd" \\'),
    ],
)
def test_only_half_surrogates_are_replaced(sent: str, read: str) -> None:
    assert at_once(mended(sent.encode())).decode() == read


def test_endless_half_surrogates_are_not_all_looked_at() -> None:
    text = at_once(mended(rb"\ud83d" * (MAX_HALVES + 5)))
    assert (text.count(rb"\ufffd"), text.count(rb"\ud83d")) == (MAX_HALVES, 5)


@pytest.mark.parametrize("row", [r"\n", r"\\", r"\u00e9", r"\ud83d\ude00", r"\ud83d", r"\uzz", "x", '"'])
def test_long_text_with_a_half_is_mended_in_steps_wherever_these_end(row: str) -> None:
    rows = row * (20 * STEP_BYTES // len(row))
    read, steps = counted(mended(f'["\\ud83d{rows}\\ud83d{rows}"]'.encode()))
    whole = rows.replace(r"\ud83d", r"\ufffd") if row == r"\ud83d" else rows
    assert read.decode() == f'["\\ufffd{whole}\\ufffd{whole}"]'
    assert steps >= 40


LONG = "7" * 4301


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (f'{{"n":{LONG},"m":[-{LONG}0, 1]}}', f'{{"n":"{LONG}","m":["-{LONG}0", 1]}}'),
        (f'["\\"", {LONG}]', f'["\\"", "{LONG}"]'),
        (LONG, f'"{LONG}"'),
        *((same, same) for same in (LONG[1:], f"-{LONG[1:]}", f'["{LONG}"]', f'{{"{LONG}":"\\"{LONG}"}}')),
        *((same, same) for same in (f"{LONG}.5", f"{LONG}e1", f"1.{LONG}", f"1e{LONG}", f"1e-{LONG}")),
    ],
    ids=range(12),
)
def test_integers_beyond_what_the_parser_takes_become_the_text_of_their_digits(sent: str, read: str) -> None:
    assert at_once(mended(sent.encode())).decode() == read


@given(st.integers(0, 300), st.lists(st.integers(4_000, 4_700), max_size=4))
def test_long_integers_are_found_wherever_they_stand(before: int, lengths: list[int]) -> None:
    read = from_json(
        at_once(mended(json.dumps(["x" * before, *[digits * "9" for digits in lengths]]).encode()))
    )
    text = json.dumps("x" * before) + "".join(f",{digits * '9'}" for digits in lengths)
    assert [str(value) for value in from_json(at_once(mended(f"[{text}]".encode())))] == read


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{', 7),
        (b'{"id": 7, "result": {', 7),
        (b'{"result":{"id":1},"jsonrpc":"2.0","id":7}', 7),
        (b'{"result":[],"id":7,"jsonrpc":"2.0"}', 7),
        (b'{"result":{"id":1}}', None),
        (b"listening on port 7", None),
    ],
)
def test_id_of_an_unreadable_answer_is_found(text: bytes, request_id: int | None) -> None:
    assert answered_id(text, text) == request_id


def test_excerpt_is_one_printable_line() -> None:
    assert Scrubber(()).excerpt(b"\x1b[31mred\r\nalert\xff" + b"x" * 1000, 20) == " [31mred  alert\ufffdxxxx…"


def test_posts_that_await_an_answer_are_told_from_those_that_do_not() -> None:
    request = JSONRPCRequest(
        jsonrpc="2.0", id="listen-1", method="tools/call", params={"method": "notifications/x"}
    )
    notification = JSONRPCNotification(
        jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 1}
    )
    assert awaits_answer(request.model_dump_json(exclude_unset=True).encode())
    assert not awaits_answer(notification.model_dump_json(exclude_unset=True).encode())
    assert not awaits_answer(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    assert given_up_id(request.model_dump_json(exclude_unset=True).encode()) is None
    assert given_up_id(notification.model_dump_json(exclude_unset=True).encode()) == 1


def test_secrets_of_every_place_are_hidden() -> None:
    http = HttpUpstream(
        url="https://user:p%40ssword@host/mcp?key=query-key", headers={"Authorization": "Bearer abc-token"}
    )
    scrub = Scrubber.for_upstream(http)
    told = scrub("p%40ssword p@ssword query-key Bearer abc-token abc-token")
    assert not any(secret in told for secret in ("ssword", "query-key", "abc-token"))
    stdio = StdioUpstream(command="x", args=("postgres://u:db-pass@h/db",), env={"A": "env-secret", "B": "1"})
    assert Scrubber.for_upstream(stdio)("1 env-secret db-pass") == "1 [hidden] [hidden]"


def test_of_secrets_that_pass_the_last_ones_stay_hidden_and_the_others_for_good() -> None:
    scrub = Scrubber(["first-secret"])
    for number in range(1_000):
        scrub.hide_for_now([f"access-{number:04}", f"refresh-{number:04}"])
    told = scrub("first-secret access-0999 refresh-0999 refresh-0990 access-0000")
    assert told == "[hidden] [hidden] [hidden] [hidden] access-0000"


KEY = "key-0123456789-abcdef"


@pytest.mark.parametrize("before", range(80, 125))
def test_no_part_of_a_secret_is_left_where_a_text_is_cut(before: int) -> None:
    text = "x" * before + KEY + "y" * 500
    scrub = Scrubber([KEY])
    for told in (scrub.excerpt(text.encode()), scrub.start(text, 120)):
        assert "key-" not in told
        assert told.startswith("x" * min(before, 120)) and len(told) <= 130
        assert ("[hidden]" in told) is (before < 120)


def test_many_secrets_in_a_row_let_no_part_of_the_last_one_through() -> None:
    scrub = Scrubber([KEY])
    for told in (scrub.excerpt((KEY * 500).encode()), scrub.start(KEY * 500, 2_000)):
        assert "0123" not in told and "[hidden]" in told
    assert scrub.excerpt(("\u20ac" * 115 + KEY).encode()) == "\u20ac" * 115 + "[hidden]"


def test_secret_of_several_lines_is_hidden_line_by_line() -> None:
    assert "MIIE" not in Scrubber(["-----BEGIN-----\nMIIEpAIBAAKC\nab\n"])("line: MIIEpAIBAAKC ab")


def test_user_of_a_url_without_a_password_is_a_key_and_what_is_sent_of_both_is_hidden() -> None:
    alone = Scrubber.for_upstream(HttpUpstream(url="https://key-of-user@host/mcp"))
    assert alone("key-of-user") == "[hidden]"
    both = Scrubber.for_upstream(HttpUpstream(url="https://user:p%40ss@host/mcp"))
    assert both(f"user {b64encode(b'user:p@ss').decode()}") == "user [hidden]"


def test_name_of_a_scheme_is_no_secret() -> None:
    scrub = Scrubber.for_upstream(
        HttpUpstream(url="https://host", headers={"Authorization": "Bearer abcdef"})
    )
    assert scrub("Bearer token expired: abcdef") == "Bearer token expired: [hidden]"

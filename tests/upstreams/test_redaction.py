"""Secrets are masked by value and in their usual encodings, and nothing else is."""

import base64
import json
import random
import string
from time import thread_time
from urllib.parse import quote, quote_plus

import pytest

from manifests.portal_manifest import HttpUpstream
from upstreams.redaction import MASK, Redaction, secrets_of

SECRET = 'pa"ss+w/ord \u00e9&key=9'
redact = Redaction([SECRET, "543210", "Bearer zzzzzzzz9", "postgres://app:hunter22@db/x"])


def test_secret_that_is_nested_too_deeply_to_look_is_masked_in_the_text() -> None:
    text = b"[" * 600 + b'"Bearer zzzzzzzz9"' + b"]" * 600
    assert b"zzzzzzzz9" not in redact.in_json(text)


@pytest.mark.parametrize(
    "told",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(SECRET).replace("/", "\\/"),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        *(base64.b64encode(b"u" * n + SECRET.encode() + b":tail").decode() for n in range(3)),
        base64.urlsafe_b64encode(b"user:" + SECRET.encode()).decode(),
    ],
)
def test_secret_is_masked_in_each_encoding(told: str) -> None:
    shown = redact(f"error: {told} was refused")
    assert MASK in shown
    assert "ss+w" not in shown and told not in shown
    assert shown.startswith("error: ") and shown.endswith(" was refused")


def test_token_of_a_header_and_password_of_a_url_are_masked_alone() -> None:
    assert redact("zzzzzzzz9 hunter22 postgres") == f"{MASK} {MASK} postgres"


def test_json_stays_json_and_only_strings_change() -> None:
    value = {"n": 543210, "text": "at 543210", SECRET: [{"deep": json.dumps({"a": SECRET})}], "other": 1.5}
    expected = {"n": 543210, "text": f"at {MASK}", MASK: [{"deep": json.dumps({"a": MASK})}], "other": 1.5}
    assert json.loads(redact.in_json(json.dumps(value).encode())) == expected


def test_json_is_read_however_its_characters_are_escaped() -> None:
    """Go writes & as an escape, .NET +."""
    text = json.dumps(SECRET).replace("&", r"\u0026").replace("+", r"\u002B")
    assert json.loads(redact.in_json(text.encode())) == MASK


def test_secret_of_short_runs_is_masked_in_a_text_that_is_json() -> None:
    secret = 'k7!/Q2"a9\\z3&m1/Xy%'
    for inner in (json.dumps({"key": secret}), json.dumps({"key": secret}).replace("/", "\\/")):
        masked = json.loads(Redaction([secret]).in_json(json.dumps({"text": inner}).encode()))
        assert masked == {"text": json.dumps({"key": MASK})}


@pytest.mark.parametrize("words", ["", "x", "see "])
def test_start_shows_no_half_secret_after_masked_ones(words: str) -> None:
    secret = "canary-5b1e-zyx9-of-many-characters"
    redaction, text = Redaction([secret]), words + secret * 9
    for limit in range(10, 200):
        assert "canary"[:3] not in redaction.start(text, limit)
    assert redaction.start(words + "harmless " * 99, 40) == f"{words}{'harmless ' * 99}"[:40] + "…"


def test_what_a_section_signs_in_with_is_secret_though_it_is_written_out() -> None:
    login = base64.b64encode(b"me:pass-word").decode()
    headers = {"Authorization": f"Basic {login}", "X-Team": "red"}
    found = {*secrets_of(HttpUpstream(url="https://me:from-url@a.example/mcp", headers=headers))}
    assert {"from-url", "pass-word", f"Basic {login}"} <= found
    assert "red" not in found


def a_token(characters: int) -> str:
    return "".join(random.choices(string.ascii_letters + string.digits + "-._~+/", k=characters))


def test_renewals_of_one_upstream_are_quick_and_unmask_no_current_token_of_another() -> None:
    redaction, other = Redaction(["of-the-manifest"]), a_token(40)
    redaction.add("other", [other])
    seconds, tokens = [], [[a_token(1_500), a_token(1_200)] for _ in range(12)]
    for each in tokens:
        began = thread_time()
        redaction.add("own", each)
        redaction.add("own", each)
        seconds.append(thread_time() - began)
    assert max(seconds) < 0.1
    for current in (other, "of-the-manifest", *tokens[-1], *tokens[-2]):
        assert redaction(f"sent {current}") == f"sent {MASK}"
    assert not any(MASK in redaction(former) for each in tokens[:-3] for former in each)  # nothing grows


def test_secrets_that_leave_the_manifest_are_masked_for_a_while() -> None:
    redaction = Redaction(["secret-1", "secret-2"])
    redaction.replace(["secret-2"])
    assert redaction("secret-1 secret-2") == f"{MASK} {MASK}"


def test_masking_many_strings_takes_little_longer_than_reading_them() -> None:
    value = {"many": [""] * 200_000, "told": SECRET}
    redaction = Redaction([SECRET, *(a_token(40) for _ in range(10))])
    began = thread_time()
    json.loads(json.dumps(value))
    reading_seconds, began = thread_time() - began, thread_time()
    assert redaction.in_value(value) == {**value, "told": MASK}
    assert thread_time() - began < 10 * reading_seconds


def test_secret_of_digits_is_masked_in_strings_and_stays_in_numbers() -> None:
    text = 'a "543210" \\" \\n543210\\'
    value = [543210, {text: [1.543210, text]}, "543210", -543210]
    hidden = text.replace("543210", MASK)
    assert redact.in_value(value) == [543210, {hidden: [1.543210, hidden]}, MASK, -543210]
    assert redact.in_value([543210]) == [543210]
    lines = '1 a.b {"c": 543210, "d": "543210"}\n2\n3 a.b {"e": "Bearer zzzzzzzz9"}'
    assert redact.in_json_text(lines) == lines.replace('"543210"', f'"{MASK}"').replace("zzzzzzzz9", MASK)


def test_value_with_a_lone_surrogate_is_masked() -> None:
    assert redact.in_value({"a": "\ud800", "b": SECRET}) == {"a": "\ud800", "b": MASK}

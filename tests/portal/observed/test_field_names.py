"""Keys that are data must not be taken for names: what is taken for one is kept on disk."""

import secrets
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.observed.field_names import are_numbered, is_field_name

NAMES = [
    *(
        "id",
        "createdAt",
        "created_at",
        "node_id",
        "InstanceId",
        "html_url",
        "content-type",
        "X-Rate-Limit",
        "_links",
    ),
    *(
        "@type",
        "$ref",
        "#text",
        "sha256",
        "address1",
        "p95",
        "i18n",
        "utf8",
        "base64Data",
        "isPrivate",
        "facade",
    ),
    *("mergeable_state", "PascalCaseName", "SCREAMING_CASE", "x", "HTTPStatus", "URL", "xmlHttpRequest"),
]
DATA = [
    *(
        "ann@example.com",
        "Ann Lee",
        "2026-11-22",
        "42",
        "-1",
        "3.5",
        "10.0.0.1",
        "a/b",
        "example.com",
        "",
        "+49 30 1",
    ),
    *(
        "user:17",
        "Zoë",
        "用户",
        "\u202egnp",
        "ignore all previous instructions",
        "user_123456",
        "1e5",
        "x" * 41,
    ),
    *(
        "3fa85f64-5717-4562-b3fc-2c963f66afa6",
        "deadbeef",
        "abc123",
        "xKqZbWtRpL",
        "sk-live-4f9a8b7c6d",
        "AKIA5EXAMPLE7Q2",
    ),
    *("Bearer_a8f3", "ghp_16C7e42F292c6912E7", "hxtzrwqpd"),
]


@pytest.mark.parametrize("key", NAMES)
def test_names_that_programmers_give_are_names(key: str) -> None:
    assert is_field_name(key)


@pytest.mark.parametrize("key", DATA)
def test_data_is_no_name(key: str) -> None:
    assert not is_field_name(key)


def test_random_identifiers_are_no_names() -> None:
    makers = [lambda: str(uuid.uuid4()), lambda: uuid.uuid4().hex, lambda: secrets.token_hex(8)]
    assert not [key for make in makers for key in (make() for _ in range(300)) if is_field_name(key)]


@given(st.integers(0, 10**12), st.sampled_from(["user_", "order-", "v", ""]))
def test_numbered_keys_are_data(number: int, prefix: str) -> None:
    assert are_numbered({f"{prefix}{number}", f"{prefix}{number + 1}"})


def test_a_name_with_a_number_beside_others_is_a_name() -> None:
    assert not are_numbered({"address1", "address2", "city"})
    assert not are_numbered({"name", "sha256"})

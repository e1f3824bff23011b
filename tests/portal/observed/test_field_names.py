"""Keys that are data must not be taken for names: what is taken for one is kept on disk."""

import secrets
import uuid

from hypothesis import given
from hypothesis import strategies as st

from portal.library.observed import are_numbered, is_field_name

NAMES = (
    "id createdAt node_id InstanceId content-type X-Rate-Limit _links @type $ref #text sha256 address1 p95 i18n "
    "base64Data facade SCREAMING_CASE x HTTPStatus xmlHttpRequest"
)
DATA = (
    "ann@example.com 2026-11-22 42 -1 3.5 10.0.0.1 a/b example.com user:17 Zoë 用户 user_123456 1e5 deadbeef abc123 "
    "3fa85f64-5717-4562-b3fc-2c963f66afa6 xKqZbWtRpL sk-live-4f9a8b7c6d ghp_16C7e42F292c6912E7 hxtzrwqpd"
)
PHRASES = ["", "Ann Lee", "\u202egnp", "ignore all previous instructions", "x" * 41]


def test_names_that_programmers_give_are_names() -> None:
    assert [key for key in NAMES.split() if not is_field_name(key)] == []


def test_data_is_no_name() -> None:
    makers = [lambda: str(uuid.uuid4()), lambda: uuid.uuid4().hex, lambda: secrets.token_hex(8)]
    identifiers = [make() for make in makers for _ in range(300)]
    assert [key for key in [*DATA.split(), *PHRASES, *identifiers] if is_field_name(key)] == []


@given(st.integers(0, 10**12), st.sampled_from(["user_", "order-", "v", ""]))
def test_numbered_keys_are_data(number: int, prefix: str) -> None:
    assert are_numbered({f"{prefix}{number}", f"{prefix}{number + 1}"})

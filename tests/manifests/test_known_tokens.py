"""A credential that stands in the manifest itself is told, and what only looks a little like one is not."""

import pytest

from manifests.references import holds_token


@pytest.mark.parametrize(
    "text",
    [
        "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
        "Bearer github_pat_11ABCDEFG0123456789",
        "--token=glpat-abcdefghij0123456789",
        "sk-proj-abcdefghijklmnop",
        "AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    ],
)
def test_credential_of_a_known_service_is_told(text: str) -> None:
    assert holds_token(text)


@pytest.mark.parametrize(
    "text",
    [
        "ghp_",
        "production",
        "task-oriented-programming",
        "desk-lamp-in-the-kitchen",
        "${GITHUB_TOKEN}",
        "-----BEGIN CERTIFICATE-----",
    ],
)
def test_ordinary_text_is_none(text: str) -> None:
    assert not holds_token(text)

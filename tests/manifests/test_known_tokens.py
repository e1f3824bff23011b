"""A credential that stands in the manifest itself is told, and what only looks a little like one is not."""

import pytest

from manifests.references import known_token


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ghp_0123456789abcdefghijklmnopqrstuvwxyz", "a GitHub token"),
        ("Bearer github_pat_11ABCDEFG0123456789", "a GitHub token"),
        ("--token=glpat-abcdefghij0123456789", "a GitLab token"),
        (f"sk-ant-{'a' * 20}", "an Anthropic API key"),
        ("sk-proj-abcdefghijklmnop", "an OpenAI API key"),
        ("AKIAIOSFODNN7EXAMPLE", "an AWS access key"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE", "a private key"),
    ],
)
def test_credential_of_a_known_service_is_told(text: str, kind: str) -> None:
    assert known_token(text) == kind


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
    assert known_token(text) is None

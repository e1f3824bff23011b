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
        "sbp_0102030405060708090a0b0c0d0e0f1011121314",
        "--api-key=tvly-dev-0123456789abcdef",
        "fc-0123456789abcdef0123456789abcdef",
        "apify_api_0123456789abcdefABCDEF",
        "sntrys_eyJpYXQiOjE3MDA",
        "postgresql://bob:s3cret@db/x",
        "--dsn=mysql+pymysql://root:pw!@db",
        "redis://:hunter2@cache:6379/0",
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
        "postgresql://bob:${DB_PASSWORD}@db/x",
        "postgresql://bob@db:5432/x",
        "https://host:8443/path@2",
        "fc-application-name-of-somebody",
        "git+ssh://git@github.com/a/b",
        "-----BEGIN CERTIFICATE-----",
    ],
)
def test_ordinary_text_is_none(text: str) -> None:
    assert not holds_token(text)

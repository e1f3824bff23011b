"""What is taken for a secret, and what is not."""

import pytest

from portal.client_files.secret_values import (
    hidden_arguments,
    hidden_header,
    hidden_url,
    hidden_variable,
    is_secret_name,
    looks_secret,
)
from portal.client_files.variables import Reference, Secret, Template, shown

RANDOM = "q7Fz3kR9vB2xM5tL8wNd"
HEX = "0123456789abcdef" * 2


def secrets(template: Template) -> list[str]:
    return [piece.value for piece in template if isinstance(piece, Secret)]


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN",
        "GITHUB_TOKEN",
        "api-key",
        "apiKey",
        "X-API-Key",
        "x_auth_token",
        "Authorization",
        "DB_PASSWORD",
        "pwd",
        "clientSecret",
        "SESSION_ID",
        "JWT",
        "GITHUBTOKEN",
        "NOTION_APIKEY",
        "AWS_SECRET_ACCESS_KEY",
        "private_key",
        "SENTRY_DSN",
        "Cookie",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "PATH",
        "KEY_FILE",
        "TOKEN_LIMIT",
        "AUTH_TYPE",
        "KEYCLOAK_URL",
        "MAX_TOKENS",
        "monkey",
        "keyboard",
        "CLIENT_ID",
        "DEBUG",
        "author",
        "TOKEN_URL",
        "user-agent",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "word",
    [
        "ghp_abcdefghijklmnop1234",
        "github_pat_11ABCDEFG0abcdefghij",
        "sk-proj-abc123def456ghi789",
        "xoxb-1234567890-abc",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA1234567890abcdefghijk",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "hf_abcdefghijklmnopqrst",
        "123e4567-e89b-12d3-a456-426614174000",
        RANDOM,
        HEX,
        "dGhpcyBpcyBhIHNlY3JldCBrZXk5NzUx",
    ],
)
def test_words_that_machines_made(word: str) -> None:
    assert looks_secret(word)


@pytest.mark.parametrize(
    "word",
    [
        "",
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "mcp-server-git==2025.11.25",
        "ghcr.io/github/github-mcp-server@sha256:" + HEX * 2,
        "git+https://example.com/x@" + HEX + "01234567",
        "/nix/store/" + HEX + "-node/bin/server.js",
        "/home/somebody/projects/2025/AnalyticsDashboard01",
        "https://api.example.com/mcp",
        "America/New_York",
        "internationalization",
        "--allow-everything-that-there-is",
        "sk-learn-and-friends",
    ],
)
def test_words_that_people_made(word: str) -> None:
    assert not looks_secret(word)


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("GITHUB_TOKEN", "x", ["x"]),
        ("DEBUG", "true", []),
        ("AUTH", "false", []),
        ("TOKEN", "", []),
        ("TOKEN", "${OTHER}", []),
        ("DATABASE_URL", "postgresql://me:pa@ss@db.example/shop?sslmode=require", ["pa@ss"]),
        ("ENDPOINT", "https://example.com/mcp", []),
        ("WEBHOOK", f"https://hooks.example/{RANDOM}", [RANDOM]),
        ("HEADERS", '{"Authorization": "Bearer abcdef12"}', ['{"Authorization": "Bearer abcdef12"}']),
        ("SETTINGS", '{"api_key": "abc"}', ['{"api_key": "abc"}']),
        ("SETTINGS", '{"theme": "dark"}', []),
        ("REGION", "eu-central-1", []),
        ("ANYTHING", RANDOM, [RANDOM]),
    ],
)
def test_variables(name: str, value: str, hidden: list[str]) -> None:
    assert secrets(hidden_variable(name, (value,))) == hidden


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("Authorization", "Bearer abc", ["abc"]),
        ("authorization", "abc", ["abc"]),
        ("Authorization", "Bearer ${TOKEN}", []),
        ("X-Api-Key", "abc", ["abc"]),
        ("X-Region", "eu", []),
        ("X-Custom", f"Token {RANDOM}", [RANDOM]),
        ("Content-Type", "application/json", []),
    ],
)
def test_headers(name: str, value: str, hidden: list[str]) -> None:
    template = hidden_header(name, (value,))
    assert secrets(template) == hidden
    assert shown(template).replace("***", "".join(hidden)) == value


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        ("https://example.com/mcp?region=eu#top", []),
        ("https://me:secret@example.com/mcp", ["secret"]),
        ("https://me@example.com/mcp", []),
        (f"https://{RANDOM}@example.com/mcp", [RANDOM]),
        ("https://example.com/mcp?api_key=abc&page=2", ["abc"]),
        ("https://example.com/mcp?page=2&x=" + HEX, [HEX]),
        (f"https://example.com/mcp/{RANDOM}/sse", [RANDOM]),
        ("https://example.com/mcp#access_token=abc", ["abc"]),
        ("https://[::1]:8080/mcp", []),
    ],
)
def test_urls(url: str, hidden: list[str]) -> None:
    template = hidden_url((url,))
    assert secrets(template) == hidden
    pieces = [piece.value if isinstance(piece, Secret) else str(piece) for piece in template]
    assert "".join(pieces) == url


@pytest.mark.parametrize(
    ("arguments", "hidden"),
    [
        (["--api-key", "abc", "--verbose"], ["abc"]),
        (["--api-key=abc"], ["abc"]),
        (["--token", "--verbose"], []),
        (["--token-file", "/run/token"], []),
        (["-e", "GITHUB_TOKEN=abc", "-e", "GITHUB_TOKEN", "-e", "DEBUG=1"], ["abc"]),
        (["mcp-remote", "https://x.example/mcp", "--header", "Authorization: Bearer abc"], ["abc"]),
        (["--header", "Authorization:${AUTH}"], []),
        (["--header=X-Api-Key: abc"], ["abc"]),
        (["postgresql://me:abc@localhost/db"], ["abc"]),
        (["--db", "postgresql://me:abc@localhost/db"], ["abc"]),
        ([RANDOM], [RANDOM]),
        (["-y", "@scope/server", "/data", "--port", "8080", "C:\\data"], []),
    ],
)
def test_arguments(arguments: list[str], hidden: list[str]) -> None:
    found = hidden_arguments([(each,) for each in arguments])
    assert [value for template in found for value in secrets(template)] == hidden
    texts = ["".join(p.value if isinstance(p, Secret) else str(p) for p in template) for template in found]
    assert texts == arguments


def test_what_a_variable_fills_in_is_left_to_it() -> None:
    template: Template = ("Bearer ", Reference("TOKEN"))
    assert hidden_header("Authorization", template) == template
    assert hidden_arguments([("--token",), (Reference("TOKEN"),)]) == (("--token",), (Reference("TOKEN"),))

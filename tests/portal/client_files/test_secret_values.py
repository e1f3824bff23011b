"""What is taken for a secret, and what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.credential_names import is_credential_name
from portal.client_files.secret_names import is_secret_name
from portal.client_files.secret_values import (
    hidden_arguments,
    hidden_header,
    hidden_url,
    hidden_variable,
    looks_secret,
)
from portal.client_files.variables import Reference, Secret, Template, shown

RANDOM = "q7Fz3kR9vB2xM5tL8wNd"
HEX = "0123456789abcdef" * 2
PADDED = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA="
UNTOLD = ("ARGUMENT", "TENANT", "HEADERS")


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
        "COOKIES_HEADER",
        "JWT",
        "GITHUBTOKEN",
        "NOTION_APIKEY",
        "AWS_SECRET_ACCESS_KEY",
        "private_key",
        "SENTRY_DSN",
        "Cookie",
        "TOKENS",
        "API_TOKENS",
        "accessTokens",
        "CREDS",
        "awscreds",
        "DB_CRED",
        "PASSWORDS",
        "COOKIES",
        "PASSCODE",
        "WIFI_PSK",
        "PW",
        "DB_PW",
        "DBPASS",
        "smtppass",
        "MYSQLPWD",
        "ACCESSKEY",
        "SECRETKEY",
        "secretkey",
        "AUTHKEY",
        "PASSKEY",
        "MNEMONIC",
        "WALLET_MNEMONIC",
        "SEED_PHRASE",
        "recoveryPhrase",
        "MFA_SEED",
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
        "maxOutputTokens",
        "DEFAULT_MINIMUM_TOKENS",
        "TOKENS_PER_MINUTE",
        "maxtokens_per_call",
        "COOKIES_FILE",
        "cookie-path",
        "SESSION_DIR",
        "session-timeout",
        "COOKIE_TTL",
        "PW_BROWSER",
        "sacred",
        "BYPASS",
        "COMPASS",
        "--overpass",
        "OLDPWD",
        "GIT_ASKPASS",
        "SSH_AUTH_SOCK",
        "RESTIC_PASSWORD_COMMAND",
        "DBUS_SESSION_BUS_ADDRESS",
        "TOKEN_HELPER",
        "PASSENGERS",
        "SEARCH_PHRASE",
        "SEED_FILE",
        "authSource",
        "authMechanism",
        "AUTH_CONFIG",
        "COOKIE_DOMAIN",
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
        "aB3d-E5g_H7jK9mNpQ1sT-v3X5zA7cDfG9",
        "pL0-x9QmZ2rT_vB4nK7sWc8yHd3J-fGu",
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
        "Meta-Llama-3-1-70B-Instruct-Q4_K_M-GGUF",
        "Mozilla-Firefox-128-Portable-x64-Setup",
        "Backup_2023-12-04T10-15-30Z_B2_S3",
        "arn-aws-iam-123456789012-Role-MyRole-Dev2",
    ],
)
def test_words_that_people_made(word: str) -> None:
    assert not looks_secret(word)


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("GITHUB_TOKEN", "x", ["x"]),
        ("DEBUG", "true", []),
        ("CONTEXT_TOKENS", "8000", []),
        ("thinkingTokens", " 1024", []),
        ("TOKENS", "1234567", []),
        ("TOKENS", "12345678", ["12345678"]),
        ("API_TOKENS", "8000a", ["8000a"]),
        ("AUTH_TOKENS", "8000", ["8000"]),
        ("TOKEN", "8000", ["8000"]),
        ("PIN", "8000", ["8000"]),
        ("SETTINGS", '{"context_tokens": 8000}', []),
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
        ("ARGS", "--password hunter2", ["hunter2"]),
        ("ARGS", "--require=/tmp/x.js --api-key x --title 'a b'", ["x"]),
        ("ARGS", "--password 'hunter 2' -v", ["--password 'hunter 2' -v"]),
        ("ARGS", '["--token", "hunter2"]', ['["--token", "hunter2"]']),
        ("ARGS", "--token-file /run/token --max-tokens 4096 --password --verbose", []),
        ("ARGS", "--token $TOKEN", []),
        ("STORE", "root:hunt:er@2@tcp(db.example:3306)/shop", ["hunt:er@2"]),
        ("STORE", "root@tcp(db.example:3306)/shop", []),
        ("ANYTHING", RANDOM, [RANDOM]),
        ("SEED", "1234567890", []),
        ("WALLET_SEED", "legal winner thank year", ["legal winner thank year"]),
        ("SORT_KEY", "created_at", []),
        ("PRIMARY_KEY", "id", []),
        ("GIT_CONFIG_KEY_0", "core.sshCommand", []),
        ("GIT_CONFIG_KEY_1", "url.https://me:abc@h.example/.insteadOf", ["abc"]),
        ("PRIMARY_KEY", "x7y+z", ["x7y+z"]),
        ("AUTH", "bearer", []),
        ("HTTP_AUTH", "me:abc", ["me:abc"]),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/keys/sa.json", []),
        ("TLS_KEY", "./key.pem", []),
        ("TLS_KEY", r"C:\keys\a.key", []),
        ("API_KEY", "/" + RANDOM, ["/" + RANDOM]),
        ("API_KEY", "/aB3+x/y9", ["/aB3+x/y9"]),
        ("DB_PASSWORD", "~/hunter", ["~/hunter"]),
        ("ORACLE_CONNECTION_STRING", "scott/tiger@db.example:1521/XE", ["tiger"]),
        ("connectionString", "scott/ti@ger/2@XE", ["ti@ger/2"]),
        ("DB_URL", "jdbc:oracle:thin:scott/tiger@db.example:1521:orcl", ["tiger"]),
        ("DB_URL", "jdbc:oracle:thin:@//db.example:1521/orcl", []),
        ("DB_URL", "/@XE", []),
        ("IMAGE", "crystaldba/postgres-mcp@sha256:" + HEX * 2, []),
        ("PACKAGE", "owner/repo@v1.2", []),
        ("MONGO", "mongodb://u:abc@h/?authSource=admin&authMechanism=SCRAM-SHA-256", ["abc"]),
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
        ("X-Context-Tokens", "8000", []),
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
        ("https://hunter22@example.com/mcp", ["hunter22"]),
        ("https://somebody@example.com/mcp", []),
        ("ssh://deployer@example.com/srv", []),
        ("postgresql://postgres@localhost/mydb", []),
        ("https://example.com/mcp?api_key=abc&page=2", ["abc"]),
        ("https://example.com/mcp?page=2&x=" + HEX, [HEX]),
        (f"https://example.com/mcp/{RANDOM}/sse", [RANDOM]),
        ("https://example.com/mcp#access_token=abc", ["abc"]),
        ("https://[::1]:8080/mcp", []),
        ("https://example.com/mcp?context_tokens=8000&token=8000", ["8000"]),
        ("https://example.com/mcp;token=hunter2", ["hunter2"]),
        ("https://example.com/mcp;v=1;token=hunter2;x/sse", ["hunter2;x"]),
        ("https://example.com/token=hunter2/sse", ["hunter2"]),
        ("https://example.com/mcp;v=1;lang=en", []),
        ("https://example.com/mcp?a=b;token=hunter2&c=d", ["hunter2"]),
        ("https://example.com/mcp?token=hunter2;x&c=d", ["hunter2;x"]),
        (f"https://example.com/mcp?{RANDOM}", [RANDOM]),
        (
            "https://example.com/mcp?config=%7B%22apiKey%22%3A%22abc%22%7D&x=y",
            ["%7B%22apiKey%22%3A%22abc%22%7D"],
        ),
        ('https://example.com/mcp?c={"apiKey":"abc"}#x', ['{"apiKey":"abc"}']),
        ("https://example.com/mcp?db=postgres://me:abc@db.example", ["postgres://me:abc@db.example"]),
        ('https://example.com/mcp?c={"theme":"dark"}&next=https://x.example/&sort=key:asc', []),
        (f"https://example.com/mcp?{RANDOM}=x", [f"{RANDOM}=x"]),
        ("https://example.com/dGhpcyBpcyBhIHNlY3JldCBrZXk5NzUx==/x", ["dGhpcyBpcyBhIHNlY3JldCBrZXk5NzUx=="]),
        ("sqlserver://db.example:1433;user=me;password=hunter2", ["hunter2"]),
    ],
)
def test_urls(url: str, hidden: list[str]) -> None:
    template = hidden_url((url,))
    assert secrets(template) == hidden and unmixed(template) == url


@pytest.mark.parametrize("password", ["hunt#er2", "hu/nt", "hu?nt", "h@n#t", "a:b/c", "#", "%23"])
@pytest.mark.parametrize("user", ["app", "", "app@corp"])
def test_passwords_of_databases_with_what_ends_a_name_elsewhere(user: str, password: str) -> None:
    url = f"postgresql://{user}:{password}@db.example/shop?sslmode=require"
    for template in (hidden_variable("DATABASE_URI", (url,)), *hidden_arguments((), [(url,)])):
        assert secrets(template) == [password] and unmixed(template) == url


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com:8080/@scope/pkg@1",
        "git+https://example.com:8443/x@v1",
        "git+ssh://git@example.com:22/x@v1",
        "redis://cache.example:6379/0",
        "postgresql://app@db.example:5432/shop",
    ],
)
def test_ports_that_are_no_passwords(url: str) -> None:
    assert secrets(hidden_variable("DATABASE_URI", (url,))) == []


@pytest.mark.parametrize(
    ("arguments", "hidden"),
    [
        (["--api-key", "abc", "--verbose"], ["abc"]),
        (["--api-key=abc"], ["abc"]),
        (["--context-tokens", "8000", "--reply-tokens=1024", "--tokens", "abc"], ["abc"]),
        (["--token", "--verbose"], []),
        (["--token-file", "/run/token"], []),
        (["-e", "GITHUB_TOKEN=abc", "-e", "GITHUB_TOKEN", "-e", "DEBUG=1"], ["abc"]),
        (["-e", "PW=abc", "--max-tokens", "4096"], ["abc"]),
        (["-e", "BASIC_AUTH=me:abc", "--token=id:def", "-e", "HOST=db:abc"], ["me:abc", "id:def"]),
        (["mcp-remote", "https://x.example/mcp", "--header", "Authorization: Bearer abc"], ["abc"]),
        (["--header", "Authorization:${AUTH}"], []),
        (["--header=X-Api-Key: abc"], ["abc"]),
        (["postgresql://me:abc@localhost/db"], ["abc"]),
        (["--db", "postgresql://me:abc@localhost/db"], ["abc"]),
        ([RANDOM], [RANDOM]),
        (["-c", "npx foo --api-key abc"], ["abc"]),
        (["/c", "server", "-secret", "hunter22x"], ["hunter22x"]),
        (["/c", "npx foo -token 'abc' -v --pw def"], ["abc", "def"]),
        (["-c", "npx foo --token 'a bc'"], ["npx foo --token 'a bc'"]),
        (["-c", r"npx foo --token a\ bc --pw def"], [r"npx foo --token a\ bc --pw def"]),
        (["-c", "npx foo --token abc, --pw def"], ["npx foo --token abc, --pw def"]),
        (["-c", "npx foo --token " + "a" * 201], ["a" * 201]),
        (["-c", f"npx foo --token abc {RANDOM}"], ["abc", RANDOM]),
        (["/c", "npx foo postgresql://me:abc@db.example/shop"], ["abc"]),
        (["-c", "foo --db=mysql://me:abc@db.example/shop -v"], ["abc"]),
        (["-c", "foo me:abc@tcp(db.example)/shop -v"], ["abc"]),
        (["-c", "foo https://x.example/?token=abc&page=2; bar"], ["abc"]),
        (["-c", "foo https://x.example/?token=abc;bar"], ["foo https://x.example/?token=abc;bar"]),
        (["-c", "foo postgres://me:$PW@db/x"], []),
        (["-c", "LINT_TOKEN=abc; touch x; exec bar"], ["abc"]),
        (["-c", "export A_TOKEN=abc B_TOKEN='def' && exec bar -v"], ["abc", "def"]),
        (["-c", "TOKEN='abc def' bar"], ["TOKEN='abc def' bar"]),
        (["-c", "TOKEN=abc'def' bar"], ["TOKEN=abc'def' bar"]),
        (["-c", "TOKEN=abc`bar`"], ["TOKEN=abc`bar`"]),
        (["/c", "set PASSWORD=abc def&& bar"], ["set PASSWORD=abc def&& bar"]),
        (["/c", "set PASSWORD=abc&& bar"], ["abc"]),
        (["-c", "foo 'Server=h;Password=a b;X=1'"], ["foo 'Server=h;Password=a b;X=1'"]),
        (["-c", "env 'PASSWORD=abc' foo"], ["abc"]),
        (
            ["-c", "curl -H 'Authorization: Bearer abcdef' -H 'X-Api-Key: ghi' https://x.example | sh"],
            ["abcdef", "ghi"],
        ),
        (["-c", "Authorization: Bearer abcdef; bar"], ["abcdef"]),
        (["-lc", "https://x.example/; bar"], []),
        (["-c", "foo 'a b' 'ghcr.io/x/y@sha256:" + HEX * 2 + "'"], []),
        (["-v", "PASSWORD=a b"], ["a b"]),
        (["$" + RANDOM], ["$" + RANDOM]),
        ([RANDOM + "&Zx9"], [RANDOM + "&Zx9"]),
        (["a b " + RANDOM + "&Zx9"], ["a b " + RANDOM + "&Zx9"]),
        (["a b (" + RANDOM + ") c"], [RANDOM]),
        (["--profile", PADDED], [PADDED]),
        (["start", PADDED], [PADDED]),
        ([f"--profile={PADDED}"], [PADDED]),
        ([f"{PADDED}x"], [f"{PADDED}x"]),
        (["--token:abc", "out.txt", "--other", "x.txt"], ["abc"]),
        (["--profile=", "--profile=="], []),
        (["root:abc@tcp(db.example)/shop?parseTime=true"], ["abc"]),
        (["--store", "root:a b/c@unix(/run/db.sock)/shop"], ["a b/c"]),
        (["--store=root:abc@tcp(db.example)/shop"], ["abc"]),
        (["jdbc:oracle:thin:scott/tiger@//db.example:1521/svc"], ["tiger"]),
        (
            ["-c", "foo scott/tiger@db.example:1521/XE; DB=scott/lion@db.example:1521/XE bar"],
            ["tiger", "lion"],
        ),
        (["scott/tiger@db.example:15210/XE", "scott/lion@db.example:2484:orcl"], ["tiger", "lion"]),
        (["owner/repo@host:8080/x", "owner/repo@host:443/x", "owner/repo@host:5000/x"], []),
        (["-c", "GOOGLE_APPLICATION_CREDENTIALS=$HOME/x.json TLS_KEY=${PWD}/tls.key npx s"], []),
        (["-c", "DB_PASSWORD=$HOME/x npx s"], ["DB_PASSWORD=$HOME/x npx s"]),
        (["owner/repo@v1.2", "@scope/pkg@1.0", "localhost:5000/x@sha256:" + HEX * 2], []),
        (["--auth", "browser", "--auth=azcli", "--auth-config", "a.json", "--credentials", "~/c.json"], []),
        (["-v", "gdrive-credentials:/creds", "-v", "auth:/", "--private-key", "/home/me/.ssh/id"], []),
        (["--secretkey", "abc", "--dbpass=def", "--bypass", "x"], ["abc", "def"]),
        (["-c", "npx foo --key-file /run/key --region eu --token"], []),
        (["-c", "npx -y foo --token $(gh auth token) --org acme"], []),
        (["-c", "npx -y foo --token `cat f` --password '$(cat f)' --pw $TOKEN"], []),
        (["-c", "TOKEN=$(gh auth token) API_KEY=`cat f` npx -y foo"], []),
        (["-c", 'curl -H "Authorization: Bearer $(gh auth token)" https://x.example; : --token $(x)'], []),
        (["-c", "npx foo --session-timeout 30 --auth oauth"], []),
        (["--session-timeout", "30", "--auth", "oauth", "--auth", "hunter2"], ["hunter2"]),
        (["--session-name", "abc", "--password", "oauth"], ["abc", "oauth"]),
        (["-c", "npx foo --token $(gh auth token) --pw abc"], ["abc"]),
        (["-c", "npx foo --token $(gh"], ["npx foo --token $(gh"]),
        (["-c", "TOKEN=$(f --pw 'a bc') foo"], ["TOKEN=$(f --pw 'a bc') foo"]),
        (["-c", f"TOKEN=$(echo {RANDOM}) foo"], [RANDOM]),
        (["-c", "TOKEN=abc$(x)"], ["TOKEN=abc$(x)"]),
        (["-c", "npx mcp-remote https://x.example:8080/@scope/mcp postgres://me@db/x"], []),
        (["-c", "foo me@tcp(db.example)/shop"], []),
        (["-y", "@scope/server", "/data", "--port", "8080", "C:\\data"], []),
    ],
)
def test_arguments(arguments: list[str], hidden: list[str]) -> None:
    found = hidden_arguments(("/bin/bash",), [(each,) for each in arguments])
    assert [value for template in found for value in secrets(template)] == hidden
    assert [unmixed(template) for template in found] == arguments


@pytest.mark.parametrize("command", ["python", "psql", "x/bash/y", "C:\\bash\\x.exe"])
def test_of_what_is_for_no_shell_a_value_goes_on_behind_blanks(command: str) -> None:
    argument = "PASSWORD=abc def; x"
    assert secrets(hidden_arguments((command,), [("-c",), (argument,)])[1]) == ["abc def; x"]
    assert secrets(hidden_arguments((command,), [(r"C:\cmd.EXE",), ("/c",), (argument,)])[2]) == ["abc"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (['{"apiKey": "abc"}'], ["API_KEY"]),
        (['{"apiKey": "a b"}'], ["ARGUMENT_SECRET"]),
        (["run with Bearer abcdef"], ["TOKEN"]),
        (["x ghp_abcdefghijklmnop1234"], ["ARGUMENT_SECRET"]),
        (["Host=h;Password=abc"], ["HOST_SECRET"]),
        (["--config=root:abc@tcp(db)/x"], ["CONFIG_PASSWORD"]),
        (["--Smtp:Password=abc"], ["SMTP_SECRET"]),
        (["-O:password=abc"], ["O_SECRET"]),
        (["--header: Authorization: Bearer abc"], ["HEADER_SECRET"]),
        (["--api-key:abc"], ["API_KEY"]),
        (["-c", "x --api-key abc"], ["API_KEY"]),
        (["--tenant", "123e4567-e89b-12d3-a456-426614174000"], ["ARGUMENT"]),
        (["--tenant=123e4567-e89b-12d3-a456-426614174000"], ["TENANT"]),
        (["-e", 'HEADERS={"token": "abc"}'], ["HEADERS"]),
    ],
)
def test_name_that_is_made_for_a_secret_says_that_it_is_one(arguments: list[str], names: list[str]) -> None:
    """So that the portal takes it out of results; an id that only looks like one is what scripts work with."""
    found = hidden_arguments((), [(each,) for each in arguments])
    assert [piece.name for template in found for piece in template if isinstance(piece, Secret)] == names
    assert [is_credential_name(name) for name in names] == [name not in UNTOLD for name in names]


def test_what_a_variable_fills_in_is_left_to_it() -> None:
    template: Template = ("Bearer ", Reference("TOKEN"))
    assert hidden_header("Authorization", template) == template
    assert hidden_arguments((), [("--token",), (Reference("TOKEN"),)]) == (
        ("--token",),
        (Reference("TOKEN"),),
    )


OTHER = Reference("OTHER")


def mixed(text: str) -> Template:
    """The text with a reference where it says §."""
    first, *rest = text.split("§")
    return (first, *(piece for each in rest for piece in (OTHER, each)))


def unmixed(template: Template) -> str:
    return "".join(
        "§" if isinstance(p, Reference) else p.value if isinstance(p, Secret) else p for p in template
    )


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("DATABASE_URL", "postgres://app:Hunter2Secret@§/x", ["Hunter2Secret"]),
        ("DATABASE_URL", "postgres://app:§@§/x", []),
        ("DATABASE_URL", "§://app:Hunter2Secret@§/x", ["Hunter2Secret"]),
        ("API_KEY", "sk-live-abcdefghij0123456789§", ["sk-live-abcdefghij0123456789"]),
        ("ANYTHING", f"§{RANDOM}§", [RANDOM]),
        ("ANYTHING", "§ghp_abcdefghijklmnop1234", ["ghp_abcdefghijklmnop1234"]),
        ("PASSWORD", "ab§cd", ["ab", "cd"]),
        ("AUTH", "§:§", []),
        ("AUTHORIZATION", "Bearer §", []),
        ("HEADERS", '{"Authorization": "Bearer §"}', []),
        ("ENDPOINT", "https://§.example/§/mcp", []),
        ("ENDPOINT", f"§/{RANDOM}/mcp", [RANDOM]),
    ],
)
def test_a_variable_with_a_reference_in_it(name: str, value: str, hidden: list[str]) -> None:
    template = hidden_variable(name, mixed(value))
    assert secrets(template) == hidden and unmixed(template) == value


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("Cookie", "session=Hunter2Secret; u=§", ["session=Hunter2Secret; u="]),
        ("Authorization", "Bearer §.Hunter2Secret", [".Hunter2Secret"]),
        ("Authorization", "Bearer §", []),
        ("Authorization", "§ §", []),
        ("X-Region", "eu-§", []),
    ],
)
def test_a_header_with_a_reference_in_it(name: str, value: str, hidden: list[str]) -> None:
    template = hidden_header(name, mixed(value))
    assert secrets(template) == hidden and unmixed(template) == value


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        ("https://api.example/mcp?apiKey=9f8a7b6c5d4e3f2a1b0c&user=§", ["9f8a7b6c5d4e3f2a1b0c"]),
        ("§/mcp?apiKey=abc", ["abc"]),
        ("§?apiKey=abc", ["abc"]),
        ("https://api.example/mcp?apiKey=§&user=me", []),
        ("§/mcp?page=2", []),
        (f"https://§.example/{RANDOM}/sse", [RANDOM]),
    ],
)
def test_a_url_with_a_reference_in_it(url: str, hidden: list[str]) -> None:
    template = hidden_url(mixed(url))
    assert secrets(template) == hidden and unmixed(template) == url


@pytest.mark.parametrize(
    ("arguments", "hidden"),
    [
        (["postgres://app:Hunter2Secret@§/x"], ["Hunter2Secret"]),
        (["--api-key", "abc§"], ["abc"]),
        (["--token", "§"], []),
        (["-e", "GITHUB_TOKEN=abc§"], ["abc"]),
        (["--header", "Authorization: Bearer abc§"], ["abc"]),
        (["--root=§/data", "§/server.js"], []),
        (["-c", "npx foo --token §"], []),
        (["-c", "npx foo --token § postgres://me:§@db/x"], []),
        (["-c", "npx foo me:§@tcp(db)/x"], []),
        (["me:§@tcp(db)/x"], []),
        (["me:abc§@tcp(db)/x"], ["abc"]),
        (["-c", "npx foo --token abc§"], ["abc"]),
    ],
)
def test_arguments_with_references_in_them(arguments: list[str], hidden: list[str]) -> None:
    found = hidden_arguments((), [mixed(each) for each in arguments])
    assert [value for template in found for value in secrets(template)] == hidden
    assert [unmixed(template) for template in found] == arguments


PARTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8) | st.sampled_from(
    [
        "§",
        "https://",
        "me:pw@",
        "?token=",
        "&",
        ";",
        ";pw=",
        "/",
        RANDOM,
        "Bearer ",
        "TOKEN=",
        "--api-key",
        " --token ",
        "@tcp(",
        ":",
        "%00",
        "§§",
    ]
)


@given(st.lists(PARTS, max_size=8).map("".join))
def test_whatever_is_hidden_the_text_stays_what_it_was(text: str) -> None:
    template = mixed(text)
    for name in ("TOKEN", "X-Other", "Authorization"):
        found = (hidden_variable(name, template), hidden_header(name, template), hidden_url(template))
        assert {unmixed(each) for each in (*found, *hidden_arguments((), [("--token",), template])[1:])} == {
            text
        }

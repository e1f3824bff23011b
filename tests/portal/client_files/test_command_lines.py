"""Of a text of several words no part of a secret is left, and of what is none all is."""

import pytest

from portal.client_files.secret_values import hidden_arguments, hidden_variable
from portal.client_files.variables import Secret, shown
from tests.portal.client_files.homes import Home

WHOLE = "***"


def seen(command: str, *arguments: str) -> list[str]:
    """The arguments as they are shown, with `***` for each secret."""
    return [*map(shown, hidden_arguments((command,), [(each,) for each in arguments]))]


@pytest.mark.parametrize(
    ("command", "option", "text"),
    [
        ("bash", "-c", "npx pg 'postgres://app:Pa$w0rd9@h/db'"),
        ("bash", "-c", r'npx pg "postgres://app:Pa\$w0rd9@h/db"'),
        ("bash", "-c", "npx pg 'mongodb://app:pa${ss}w9@h/db'"),
        ("bash", "-c", "npx pg 'redis://:$ecret9/x@h:1'"),
        ("bash", "-c", "curl -H 'X-Foo: Bearer abc$defghij1' https://x.example"),
        ("cmd", "/c", "npx pg postgres://app:Pa$w0rd9@h/db"),
        ("npx", "pg", "--db postgres://app:Pa$w0rd9@h/db"),
        ("npx", "pg", "Bearer abc$defghij1"),
    ],
)
def test_a_dollar_within_a_password_is_no_variable(command: str, option: str, text: str) -> None:
    assert seen(command, option, text) == [option, WHOLE]


@pytest.mark.parametrize(
    "text",
    [
        "npx pg postgres://$USER:$PW@$HOST:5432/db",
        "npx pg 'postgres://me:${PW}@h/db' --token \"$TOKEN\"",
        'curl -H "Authorization: Bearer $TOKEN" https://x.example; TOKEN=$A npx x --key=$KEY, y',
    ],
)
def test_a_whole_value_that_a_variable_fills_in_is_shown(text: str) -> None:
    assert seen("bash", "-c", text) == ["-c", text]


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--Smtp:Password", "SMTP_PASSWORD"),
        ("--AzureOpenAI:ApiKey", "AZURE_OPEN_AI_API_KEY"),
        ("--_authToken", "AUTH_TOKEN"),
        ("--//registry.npmjs.org/:_authToken", "REGISTRY_NPMJS_ORG_AUTH_TOKEN"),
        ("--2fa-secret", "_2FA_SECRET"),
        ("--api-key:", "API_KEY"),
        ("---token", "TOKEN"),
        ("--schlüssel-key", "SCHL_SSEL_KEY"),
    ],
)
def test_an_option_of_any_characters_says_what_follows_it(option: str, name: str) -> None:
    found = hidden_arguments(("dotnet",), [(option,), ("hunter2",)])
    assert [(piece.value, piece.name) for piece in found[1] if isinstance(piece, Secret)] == [
        ("hunter2", name)
    ]


@pytest.mark.parametrize(
    "option", ["--Smtp:Host", "--//registry.npmjs.org/:registry", "--2fa", "--key=x", "-"]
)
def test_an_option_of_any_characters_that_says_nothing_hides_nothing(option: str) -> None:
    assert seen("dotnet", option, "hunter2")[1] == "hunter2"


def test_an_option_of_dashes_takes_no_time() -> None:
    option = "-" * 32_000 + "="
    assert seen("dotnet", option, "hunter2") == [option, "hunter2"]


@pytest.mark.parametrize(
    ("command", "option", "text"),
    [
        ("npx", "--config", """{"user":"x","password":"It's9secret"}"""),
        ("npx", "--config", """{"user":"x","password":"It' 9secret"}"""),
        ("npx", "--config", """{'password':'It"s9secret'}"""),
        ("bash", "-c", """npx s "https://h/x?token=ab9c'd8ef" """),
        ("bash", "-c", """npx s 'https://h/x?token=ab9c'"d8ef" """),
        ("bash", "-c", """npx s "TOKEN=ab9c'd8ef" """),
        ("bash", "-c", """npx s "TOKEN=ab9c' d8ef" """),
        ("bash", "-c", """npx s "Authorization: Bearer two words9" """),
        ("bash", "-c", """npx s "X-Api-Key: it' s9" """),
        ("bash", "-c", """npx s --header 'X-Api-Key: it'\\''s9me'"""),
    ],
)
def test_a_secret_goes_on_behind_an_apostrophe_or_a_blank_in_quotes(
    command: str, option: str, text: str
) -> None:
    assert seen(command, option, text) == [option, WHOLE]


@pytest.mark.parametrize("sign", [";", "&"])
def test_what_ends_a_word_of_a_shell_ends_none_of_another_text(sign: str) -> None:
    text = f"-r x --token abc{sign}def9 -v"
    assert seen("npx", "-c", text) == ["-c", WHOLE]
    assert seen("bash", "-c", text) == ["-c", f"-r x --token ***{sign}def9 -v"]
    assert seen("npx", "-r https://h/?token=abc&page=2 -v") == ["-r https://h/?token=***&page=2 -v"]


@pytest.mark.parametrize(
    ("text", "shown_text"),
    [
        ("""npx s --config '{"user":"x","password":"abc"}' -v""", """{"user":"x","password":"***"}' -v"""),
        ("""npx s --config "{'password': 'abc', 'x': 1}" """, """{'password': '***', 'x': 1}" """),
        ("""npx s "https://h/x?token=abc" -v""", """"https://h/x?token=***" -v"""),
        ("""(npx s 'https://h/x?token=abc')""", """'https://h/x?token=***')"""),
        ("""npx s "TOKEN=abc"; x""", """"TOKEN=***"; x"""),
        ("""npx s -H "Authorization: Bearer abc"&& x""", """"Authorization: Bearer ***"&& x"""),
        ("""npx s -H 'X-Api-Key: abc'""", """'X-Api-Key: ***'"""),
    ],
)
def test_a_quote_that_ends_a_word_ends_the_secret(text: str, shown_text: str) -> None:
    assert seen("bash", "-c", text)[1].endswith(shown_text)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("-pS3cretPw1", "-p${DB_PASSWORD}"),
        ("admin.S3cretPw1", "admin.${DB_PASSWORD}"),
        ("https://h/-S3cretPw1/", "https://h/-${DB_PASSWORD}/"),
    ],
)
def test_a_known_secret_is_hidden_glued_to_other_text(home: Home, argument: str, expected: str) -> None:
    spec = home.spec("cursor", {"command": "x", "args": [argument], "env": {"DB_PASSWORD": "S3cretPw1"}})
    assert spec["args"] == [expected]


def test_a_known_secret_like_a_version_is_hidden_behind_an_option_only(home: Home) -> None:
    args = ["-phunter22", "x-phunter22", "server-hunter22", "-phunter22x"]
    spec = home.spec("cursor", {"command": "x", "args": [*args], "env": {"DB_PASSWORD": "hunter22"}})
    assert spec["args"] == ["-p${DB_PASSWORD}", *args[1:]]


@pytest.mark.parametrize(
    ("command", "option", "text"),
    [
        ("npx", "--config", r'"{\"braveApiKey\":\"hunter2\"}"'),
        ("npx", "--config", r"{\"user\":\"x\",\"password\": \"hunter2\"}"),
        ("npx", "--config", r'"{\\\"apiKey\\\":\\\"hunter2\\\"}"'),
        ("bash", "-c", r'npx -y server --config "{\"apiKey\":\"hunter2\"}"'),
        ("bash", "-c", r'x "npx server --api-key \"hunter2\""'),
        ("python", "-c", "import os; os.environ['API_KEY']='hunter2'; import x"),
        ("python", "-c", "import os; os.environ[ 'API_KEY' ] = 'hunter2'"),
        ("python", "-c", "import os; os.environ.setdefault('API_KEY', 'hunter2')"),
        ("pwsh", "-Command", "[Environment]::SetEnvironmentVariable('API_KEY','hunter2')"),
    ],
)
def test_a_secret_in_quotes_within_quotes_or_in_code_is_hidden(command: str, option: str, text: str) -> None:
    assert seen(command, option, text) == [option, WHOLE]


@pytest.mark.parametrize(
    "text",
    [
        r'"{\"theme\":\"dark\",\"auth\":\"\",\"token\":\"${X}\",\"useKey\":\"true\"}"',
        r"{\"required\": [\"API_KEY\", \"PASSWORD\"]}",
        "import os; x(os.environ['API_KEY'])",
        "require('API_KEY', x)",
    ],
)
def test_names_of_secrets_in_quotes_hide_nothing(text: str) -> None:
    assert seen("npx", "--config", text) == ["--config", text]


def test_an_option_with_a_colon_says_what_follows_in_a_text() -> None:
    text = "dotnet run --Smtp:Host x --Smtp:Password hunter2 -p 8080:80 -v auth:/y img"
    assert seen("bash", "-c", text) == ["-c", text.replace("hunter2", "***")]
    assert seen("npx", f"{text}, --Smtp:Password 'a b'") == [WHOLE]


@pytest.mark.parametrize("sign", " \"'<>|`\\")
@pytest.mark.parametrize("scheme", ["postgres", "mongodb+srv", "redis"])
def test_a_password_of_a_database_in_a_text_may_hold_what_ends_a_word(scheme: str, sign: str) -> None:
    text = f"npx x --db {scheme}://me:hun{sign}ter2@db.example/x now"
    assert seen("bash", "-c", text) == ["-c", WHOLE]
    assert seen("npx", text) == [WHOLE]
    assert shown(hidden_variable("NOTE", (text,))) == WHOLE


@pytest.mark.parametrize(
    "text",
    [
        "npx x redis://cache.example:6379/0 --mail me@x.example",
        "npx x 'redis://[::1]:6379/0' --mail me@x.example",
        'npx x "mongodb://a.example:27017,b.example:27017/x" me@x.example',
        "npx x redis://$HOST:$PORT/0 --mail me@x.example",
        "npx x postgres://me:$PW@db.example:5432/x me@x.example",
        "see https://x.example: it's of me@x.example",
        "see https://x.example/a:b for me@x.example",
        "npx x http://x.example:x/y --mail me@x.example",
    ],
)
def test_an_address_without_a_password_is_shown_beside_another_at_sign(text: str) -> None:
    assert seen("bash", "-c", text) == ["-c", text]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "DB_URI", "cacheUrl", "--proxy"])
@pytest.mark.parametrize("rest", ["@proxy.example:3128", "@db.example:3306/x", "@db.example/x?y=z"])
def test_a_login_needs_no_scheme_under_the_name_of_an_address(name: str, rest: str) -> None:
    address = f"me:hunter2{rest}"
    option = name if name.startswith("-") else f"--{name}"
    assert shown(hidden_variable(name, (address,))) == f"me:***{rest}"
    assert seen("npx", option, address) == [option, f"me:***{rest}"]
    assert seen("docker", "-e", f"{name}={address}") == ["-e", f"{name}=me:***{rest}"]
    assert seen("bash", "-c", f"{name}={address} npx x") == ["-c", WHOLE]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PACKAGE_URL", "npm:x@1.2.3"),
        ("IMAGE_URI", "postgres:16@sha256:" + "0123456789abcdef" * 4),
        ("CONTACT_URL", "mailto:me@x.example"),
        ("HTTP_PROXY", "proxy.example:3128"),
        ("REMOTE", "me:x@h.example:22"),
    ],
)
def test_what_looks_like_a_login_and_is_none_is_shown(name: str, text: str) -> None:
    assert shown(hidden_variable(name, (text,))) == text

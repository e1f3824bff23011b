"""Which values of references are credentials, and which are settings that scripts may see."""

import json
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest


def credentials(folder: Path, upstream: Json, **variables: str) -> frozenset[str]:
    """Of one upstream; variables hold `of-` and their name or what is given, and a command gives its own line."""
    path = folder / "portal.yaml"
    path.write_text(json.dumps({"upstreams": {"a": upstream}}))
    names = ("KEPT", "OTHER", "HOME", "NOTION_TOKEN", "DB_NAME", "TOKEN_FILE")
    environ = {name: f"of-{name}" for name in names} | variables
    manifest = load_manifest(path, environ, lambda references, _: {each: each.text for each in references})
    return manifest.credentials["a"]


@pytest.mark.parametrize(
    "argument",
    [
        "--token=${KEPT}",
        "--api-key=x-${KEPT}",
        "TOKEN=${KEPT}",
        "Authorization: Bearer ${KEPT}",
        "--header=Authorization:Bearer ${KEPT}",
        "x-api-key:${KEPT}",
        '{"headers": {"X-Org": "${OTHER}", "Authorization": "Bearer ${KEPT}"}}',
        '{"apiKey":"${KEPT}"}',
        r"{\"password\": \"${KEPT}\"}",
        "postgresql://app:${KEPT}@db/${OTHER}",
        "postgresql://${OTHER}:${KEPT}@db/x",
        "https://${KEPT}@git.example/x",
        "https://api.example/${OTHER}?access_token=${KEPT}&page=${OTHER}",
        "host=${OTHER} password=${KEPT}",
    ],
)
def test_value_is_a_credential_by_what_stands_before_it(tmp_path: Path, argument: str) -> None:
    assert credentials(tmp_path, {"command": "x", "args": [argument]}) == {"of-KEPT"}


@pytest.mark.parametrize("option", ["--api-key", "--token", "-token", "--auth-header", "--client_secret"])
def test_value_is_a_credential_by_the_option_before_it(tmp_path: Path, option: str) -> None:
    args = ["--folder", "${OTHER}", option, "${KEPT}", "${OTHER}"]
    assert credentials(tmp_path, {"command": "x", "args": args}) == {"of-KEPT"}


@pytest.mark.parametrize(
    "variable",
    [
        "GITHUB_PERSONAL_ACCESS_TOKEN",
        "STORE_KEY",
        "app_password",
        "AUTHORIZATION",
        "DOOR_PASSCODE",
        "wifi-psk",
        "DB_CRED",
        "SESSION",
        "web_session_id",
        "SESSIONID",
        "DOOR_PIN",
        "OTP",
        "BLOB_SAS",
        "REQUEST_SIG",
        "X-SIGNATURE",
        "VAPID_PRIVATE",
        "DATABASE_URL",
        "MSSQL_CONNECTION_STRING",
    ],
)
def test_value_is_a_credential_by_its_variable(tmp_path: Path, variable: str) -> None:
    assert credentials(tmp_path, {"command": "x", "env": {variable: "${KEPT}"}}) == {"of-KEPT"}


@pytest.mark.parametrize("text", ["${NOTION_TOKEN}", "x${NOTION_TOKEN:-}y"])
def test_value_is_a_credential_by_its_own_name(tmp_path: Path, text: str) -> None:
    for entry in ({"args": [text]}, {"env": {"X": text}}, {"cwd": text}):
        assert credentials(tmp_path, {"command": "x", **entry}) == {"of-NOTION_TOKEN"}


@pytest.mark.parametrize(
    "entry", [{"args": ["--folder", "a/${command:b}"]}, {"env": {"BUCKET": "${command:b}"}}]
)
def test_what_a_command_gave_is_a_credential_wherever_it_stands(tmp_path: Path, entry: Json) -> None:
    assert credentials(tmp_path, {"command": "x", **entry}) == {"b"}


def test_of_an_upstream_by_url_all_in_headers_is_and_of_the_rest_what_is_called_so(tmp_path: Path) -> None:
    url = "https://a.example/${OTHER}/mcp?key=${command:b}"
    upstream = {
        "url": url,
        "headers": {"X-Of": "${KEPT}"},
        "oauth": {"client_id": "${OTHER}", "scope": "${OTHER}"},
    }
    assert credentials(tmp_path, upstream) == {"of-KEPT", "b"}


@pytest.mark.parametrize(
    "argument",
    [
        "${OTHER}",
        "--folder=${OTHER}",
        "--token-file=${OTHER}",
        "--auth-type=${OTHER}",
        "--author=${OTHER}",
        "--tokenizer=${OTHER}",
        "--upskill=${OTHER}",
        "--psk-type=${OTHER}",
        "--passcode-file=${OTHER}",
        "--session-bus-address=${OTHER}",
        "--session-dir=${OTHER}",
        "--obsession=${OTHER}",
        "--pin-board=${OTHER}",
        "--shopping=${OTHER}",
        "--signature-algorithm=${OTHER}",
        "--private-registry=${OTHER}",
        "--sassy=${OTHER}",
        "token=x, folder=${OTHER}",
        "--token x ${OTHER}",
        '{"token": "x", "folder": "${OTHER}"}',
        "https://${OTHER}:8080/${OTHER}?api_key=x&folder=${OTHER}",
        "postgresql://${OTHER}:x@${OTHER}/${DB_NAME}",
        "${TOKEN_FILE}",
        "--token=${HOME}",
        "--token=$${KEPT}",
        "--token=${NOT_SET:-public}",
    ],
)
def test_settings_are_no_credentials(tmp_path: Path, argument: str) -> None:
    args = [argument, "--token", "--folder", "${OTHER}"]
    assert credentials(tmp_path, {"command": "x", "args": args}) == frozenset()


@pytest.mark.parametrize(
    "name",
    [
        "AUTH0_DOMAIN",
        "AUTH_TENANT",
        "TOKEN_ISSUER",
        "OAUTH_CLIENT_ID",
        "COOKIE_DOMAIN",
        "SSH_AUTH_SOCK",
        "KEY_VAULT",
        "KMS_KEY_ARN",
        "sort-key",
    ],
)
def test_who_and_where_of_a_login_is_a_setting_and_its_secret_is_none(tmp_path: Path, name: str) -> None:
    for variable, found in ((name, frozenset[str]()), (f"{name}_secret", {"of-KEPT"})):
        assert credentials(tmp_path, {"command": "x", "env": {variable: "${KEPT}"}}) == found
        assert credentials(tmp_path, {"command": "x", "args": [f"--{variable}", "${KEPT}"]}) == found


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("db-url", "sqlite:///${KEPT}/app.db"),
        ("auth", "${KEPT}/auth.json"),
        ("key", "file://${KEPT}/tls.pem"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "${KEPT}/key.json"),
        ("x", "--key=${KEPT}/tls.pem"),
    ],
)
@pytest.mark.parametrize(("value", "is_folder"), [("/home/ann/shop", True), ("sk/0123+456789==", False)])
def test_folder_of_a_file_with_a_credential_is_none(
    tmp_path: Path, option: str, text: str, value: str, is_folder: bool
) -> None:
    entries: tuple[Json, Json] = ({"args": [f"--{option}", text]}, {"env": {option: text}})
    for entry in entries:
        found = credentials(tmp_path, {"command": "x", **entry}, KEPT=value)
        assert found == (set() if is_folder else {value})


@pytest.mark.parametrize("name", ["DATABASE_URL", "database-url", "CONNECTION_STRING", "dsn"])
@pytest.mark.parametrize(
    "text",
    [
        "postgresql://${OTHER}:${KEPT}@${OTHER}:${OTHER}/${DB_NAME}?application=${OTHER}",
        "postgresql://${OTHER}/${DB_NAME}?user=${OTHER}&password=${KEPT}",
        "https://${KEPT}@errors.example/${OTHER}",
        "Server=${OTHER};Database=${DB_NAME};User Id=${OTHER};Password=${KEPT}",
        "host='${OTHER}' password='${KEPT}'",
        "mssql+pyodbc:///?odbc_connect=Server%3D${OTHER}%3BPWD%3D${KEPT}",
        "jdbc:oracle:thin:app/${KEPT}@//db",
        "app:${KEPT}@tcp(db)/x",
        "${KEPT}?tls=true",
        "x${KEPT}",
    ],
)
def test_of_the_address_of_a_database_what_signs_in_is_a_credential(
    tmp_path: Path, name: str, text: str
) -> None:
    entries: tuple[Json, Json] = ({"args": [f"--{name}", text]}, {"env": {name: text}})
    for entry in entries:
        assert credentials(tmp_path, {"command": "x", **entry}) == {"of-KEPT"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("postgresql://${KEPT}", "app:canary@db/x"),
        ("postgresql://db/x?${KEPT}", "user=app&password=canary"),
        ("BlobEndpoint=https://x/;SharedAccessSignature=${KEPT}", "sv=1&sig=canary%3D"),
    ],
)
def test_part_of_the_address_of_a_database_that_holds_a_login_is_a_credential(
    tmp_path: Path, text: str, value: str
) -> None:
    assert credentials(tmp_path, {"command": "x", "env": {"DATABASE_URL": text}}, KEPT=value) == {value}

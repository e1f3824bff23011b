"""Which values of references are credentials, and which are settings that scripts may see."""

import json
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest

PRIVATE_KEY = """-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEF
AASCBKcwggSjAgEAAoIBAQC7VJTU
-----END PRIVATE KEY-----"""


def credentials(folder: Path, upstream: Json, **variables: str) -> frozenset[str]:
    """Of one upstream; variables hold `of-` and their name or what is given, and a command gives its own line."""
    path = folder / "portal.yaml"
    path.write_text(json.dumps({"upstreams": {"a": upstream}}))
    names = ("KEPT", "OTHER", "HOME", "NOTION_TOKEN", "DB_NAME", "DB_PORT", "TOKEN_FILE")
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
        "REMOTE_DESKTOP_SESSION",
        "web_session_id",
        "SESSIONID",
        "DOOR_PIN",
        "OTP",
        "BLOB_SAS",
        "REQUEST_SIG",
        "X-SIGNATURE",
        "VAPID_PRIVATE",
        "WALLET_MNEMONIC",
        "SEED_PHRASE",
        "recovery-phrase",
        "MFA_SEED",
        "DBPASS",
        "MYSQLPWD",
        "ACCESSKEY",
        "DATABASE_URL",
        "MSSQL_CONNECTION_STRING",
    ],
)
def test_value_is_a_credential_by_its_variable(tmp_path: Path, variable: str) -> None:
    assert credentials(tmp_path, {"command": "x", "env": {variable: "${KEPT}"}}) == {"of-KEPT"}


@pytest.mark.parametrize("variable", ["POSTGRES_URL", "CELERY_BROKER_URL", "HTTPS_PROXY", "CONN"])
@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("amqp://app:canary-0123@mq:5672/x", "app:canary-0123"),
        ("amqp://:canary-0123@mq:5672/x", "canary-0123"),
        ("https://canary-0123456789:x-oauth-basic@h/x", "canary-0123456789"),
        ("Server=db;User Id=app;Password=canary-0123", "canary-0123"),
        ('{"headers": {"Authorization": "Bearer canary-0123"}}', "canary-0123"),
    ],
)
def test_value_is_a_credential_by_what_it_says_of_itself(
    tmp_path: Path, variable: str, value: str, secret: str
) -> None:
    found = credentials(
        tmp_path, {"command": "x", "env": {variable: f"${{{variable}}}"}}, **{variable: value}
    )
    assert found >= {value, secret}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MONKEY", "a-kind-of-animals"),
        ("MY_TURKEY", "a-kind-of-animals"),
        ("SECRETARY_EMAIL", "ann@company.example"),
        ("TOKENS_USED", "about-a-thousand-or-so"),
        ("PASSWORDLESS_HOME", "the-one-at-the-lake"),
        ("SERVICE_URL", "https://ann@service.example:8080/x:y@z"),
        ("QUERY", "https://service.example/?order=key-of-row&at=12:30@x"),
    ],
)
def test_value_is_none_by_a_part_of_a_word_or_an_at_in_a_url(
    tmp_path: Path, variable: str, value: str
) -> None:
    found = credentials(tmp_path, {"command": "x", "env": {"X": f"${{{variable}}}"}}, **{variable: value})
    assert found == frozenset()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DBT_VARS", '{"unique_key": "customer_order_line_id", "sort_key": "created_at"}'),
        ("SCHEMA_JSON", '{"primaryKey": "customer_identifier", "foreignKey": "orders.customer_id"}'),
        ("SQL_CONN", "Server=tcp:x.example;Database=tickets;Authentication=ActiveDirectoryDefault;"),
        ("JIRA_FILTER", "project = OPS AND key = OPERATIONS-12345678"),
        ("POSTGRES_URL", "postgresql://postgres:postgres@localhost:5432/tickets"),
    ],
)
def test_ordinary_value_is_no_credential(tmp_path: Path, variable: str, value: str) -> None:
    found = credentials(
        tmp_path, {"command": "x", "env": {variable: f"${{{variable}}}"}}, **{variable: value}
    )
    assert found == frozenset()


@pytest.mark.parametrize(
    "value",
    [
        json.dumps({"type": "service_account", "private_key": PRIVATE_KEY}),
        PRIVATE_KEY.replace("\n", "\\n"),
        "https://x.blob.example/files?sv=2024-11-04&sig=4h%2Bq8Zk1Lw0Xv7%2F3d&se=2027-01-01",
        '{"X-Auth-Key": "9f86d081884c7d659a2f"}',
        '{"Cookie": "session=0123456789abcdef01"}',
        '{"webhook_secret": "mysecretphraseoflast"}',
        '{"encryption_key": "9f86d081884c7d65"}',
        '{"password": "abcdefghijklmnop"}',
        "Server=db;Database=x;Password=CorrectHorseBattery",
        '{"Authorization": "Bearer AbCdEfGhIjKlMnOpQrStUvWx"}',
        "AWS_SECRET_ACCESS_KEY=/wJalrXUtnFEMI0K7MDENG0bPxRfiCYEXAMPLEKEY",
        "TOKEN=ABCD_EFGH2345_IJKL",
    ],
)
def test_value_is_one_by_a_secret_that_it_holds(tmp_path: Path, value: str) -> None:
    assert value in credentials(tmp_path, {"command": "x", "env": {"X": "${SETTINGS}"}}, SETTINGS=value)


def test_user_beside_a_password_is_no_credential(tmp_path: Path) -> None:
    for user, password in (("analytics_reader_2024", "canary-0123"), ("postgres", "postgres")):
        url = f"postgresql://{user}:{password}@db/x"
        found = credentials(tmp_path, {"command": "x", "env": {"X": "${DATABASE_URL}"}}, DATABASE_URL=url)
        assert url in found and not found & {user, "postgres:postgres"}


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
        "--bypass=${OTHER}",
        "--compass=${OTHER}",
        "--seed=${OTHER}",
        "--search-phrase=${OTHER}",
        "--oldpwd=${OTHER}",
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
        "DESKTOP_SESSION",
        "TMUX_SESSION",
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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${KEPT}/oauth-state", "/projects/acme/shop-backend"),
        ("${KEPT}/oauth-state", "/github/workspace/shop"),
        ("${KEPT}/oauth-state", "/builds/acme/shop-backend"),
        ("${KEPT}/oauth-state", "/src/acme/shop"),
        ("${PROJECT_ROOT}/oauth-state", "/odd/acme/shop-backend"),
        ("${CI_WORKSPACE}/oauth-state", "/odd/acme/shop-backend"),
        (r"${KEPT}\oauth-state", r"C:\Users\ann\shop"),
        ("${KEPT}/oauth-state", "D:/acme/shop-backend"),
    ],
)
def test_folder_of_a_project_is_none_by_how_it_begins_or_is_called(
    tmp_path: Path, text: str, value: str
) -> None:
    upstream = {"command": "x", "env": {"OAUTH_STATE": text}}
    assert credentials(tmp_path, upstream, KEPT=value, PROJECT_ROOT=value, CI_WORKSPACE=value) == set()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${KEPT}/oauth-state", "/odd/acme/shop-backend"),
        ("${PROJECT_ROOT}/oauth-state", "s3cr3t+0123456789"),
        ("${PROJECT_ROOT}", "/projects/acme/shop-backend"),
        ("${TOKEN_ROOT}/oauth-state", "/projects/acme/shop-backend"),
        ("https://h/${PROJECT_ROOT}/oauth-state", "/projects/acme/shop-backend"),
    ],
)
def test_what_is_not_clearly_a_folder_is_a_credential(tmp_path: Path, text: str, value: str) -> None:
    upstream = {"command": "x", "env": {"OAUTH_STATE": text}}
    assert credentials(tmp_path, upstream, KEPT=value, PROJECT_ROOT=value, TOKEN_ROOT=value) == {value}


@pytest.mark.parametrize("name", ["DATABASE_URL", "database-url", "CONNECTION_STRING", "dsn"])
@pytest.mark.parametrize(
    "text",
    [
        "postgresql://${OTHER}:${KEPT}@${OTHER}:${DB_PORT}/${DB_NAME}?application=${OTHER}",
        "postgresql://${OTHER}/${DB_NAME}?user=${OTHER}&password=${KEPT}",
        "https://${KEPT}@errors.example/1",
        "Server=${OTHER};Database=${DB_NAME};User Id=${OTHER};Password=${KEPT}",
        "host='${OTHER}' password='${KEPT}'",
        "mssql+pyodbc:///?odbc_connect=Server%3D${OTHER}%3BPWD%3D${KEPT}",
        "jdbc:oracle:thin:app/${KEPT}@//db",
        "jdbc:oracle:thin:app/${KEPT}@//${OTHER}:1521/x",
        "app:${KEPT}@tcp(db)/x",
        "${KEPT}?tls=true",
        "x${KEPT}",
        "libsql://db/${KEPT}",
        "libsql://db/${DB_NAME}?p=${KEPT}",
        "https://${OTHER}/x?sig=${KEPT}",
        "https://h/x?sas=${KEPT}",
        "https://h/api/${KEPT}/${DB_NAME}",
        "bigquery://p/d?credentials_base64=${KEPT}",
        "databricks://token:${KEPT}@h/x",
        "postgresql://h/x?block=${KEPT}",
        "https://h/x?code=${KEPT}",
        "https://h/x?${KEPT}",
        "https://h/x#${KEPT}",
        "clickhouse://${OTHER}?u=a&p=${KEPT}",
        "postgresql://h/x?host=${OTHER}&sslpass=${KEPT}",
        "oracle://h/?wallet_pin=${KEPT}",
        "Endpoint=https://${OTHER};Id=a;Sig=${KEPT}",
        "mongodb+srv://${OTHER}:x@h/?p=${EMPTY:-}${KEPT}",
        "mongodb+srv://u:${KEPT}",
        "mongodb+srv://u:${KEPT}${AT:-@}h",
        "postgresql://u:pa/${KEPT}",
        "postgresql://u:x@${KEPT}@${OTHER}",
        "Password=x;y@${KEPT}",
        "postgresql://${COLON:-u:}${KEPT}",
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
        ("redis://${KEPT}", "app:canary"),
        ("redis://${KEPT}", ":canary@h:1"),
        ("redis://${KEPT}", "app:12345canary"),
        ("redis://${KEPT}/0", "ca:na:ry"),
        ("redis://${KEPT}/0", "::1%canary"),
        ("postgresql://${KEPT}/x", "app:canary@h"),
        ("Endpoint=${KEPT};Id=a", "https://app:canary@h"),
        ("postgresql://db/x?${KEPT}", "user=app&password=canary"),
        ("BlobEndpoint=https://x/;SharedAccessSignature=${KEPT}", "sv=1&sig=canary%3D"),
    ],
)
def test_part_of_the_address_of_a_database_that_holds_a_login_is_a_credential(
    tmp_path: Path, text: str, value: str
) -> None:
    assert value in credentials(tmp_path, {"command": "x", "env": {"DATABASE_URL": text}}, KEPT=value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Server=tcp:${OTHER}.database.windows.net,1433;Password=x", "shop-sql"),
        ("Server=${OTHER};Password=x", "tcp:shop-sql.database.windows.net,1433"),
        ("Server={${OTHER}}", "db.internal"),
        ("Data Source=${OTHER}", r"db\express,1433"),
        ("host=a user=${OTHER}", r"corp\ann"),
        ("BlobEndpoint=${OTHER};AccountKey=x", "https://x.blob.example:443/"),
        ("app:x@tcp(${OTHER}:3306)/db", "db.internal"),
        ("app:x@unix(${OTHER})/db", "/var/run/db.sock"),
        ("jdbc:oracle:thin:@${OTHER}:1521/s", "db.internal"),
        ("jdbc:oracle:thin:@//${OTHER}:1521/s", "db.internal"),
        ("sqlserver://h;databaseName=${OTHER}", "shop"),
        ("mssql+pyodbc:///?odbc_connect=Server%3D${OTHER}", "db.internal"),
        ("sqlite:${OTHER}", "/home/ann/shop.db"),
        ("jdbc:sqlite:${OTHER}", "./shop.db"),
        ("sqlite:///${OTHER}", "/home/ann/shop.db"),
        ("postgresql:///x?host=${OTHER}", "/var/run/postgresql"),
        ("postgresql://h/x?options=-csearch_path%3D${OTHER}", "tenant"),
        ("postgresql://${OTHER}/x", "h1.internal:5432,h2.internal:5432"),
        ("postgresql://h1:5432,${OTHER}:5432/x", "h2.internal"),
        ("postgresql://app:x@[${OTHER}]:5432/x", "2001:db8:1234:5678::1"),
        ("postgresql://app:x@${OTHER}/x", "[2001:db8:1234:5678::1]:5432"),
        ("mysql+pymysql://h:3306/${OTHER}", "shop"),
        ("mongodb://h1:1,h2:2/${OTHER}?tls=true", "shop"),
        ("bigquery://${OTHER}/${DB_NAME}", "analytics_production"),
        ("redshift+psycopg2://h:5439/${OTHER}", "analytics_production"),
        ("trino://ann@h/${OTHER}/sales", "analytics_production"),
        ("https://h/api/${TENANT}/${DATASET}", "analytics_production"),
        ("https://h/v1/${MY_COLLECTION}", "analytics_production"),
        ("mongodb://h1/x?replicaSet=${OTHER}", "atlas-1a2b3c-shard-0"),
        ("app:x@tcp(h)/x?loc=${OTHER}", "America/Argentina/Ushuaia"),
        ("${DB_NAME}", "shop"),
        ("libsql://db/${DB_NAME}", "shop"),
    ],
)
def test_part_of_the_address_of_a_database_that_says_only_where_and_whose_is_none(
    tmp_path: Path, text: str, value: str
) -> None:
    for entry in ({"env": {"DATABASE_URL": text}}, {"args": ["--dsn", text]}):
        names = ("OTHER", "DB_NAME", "TENANT", "DATASET", "MY_COLLECTION")
        found = credentials(tmp_path, {"command": "x", **entry}, **dict.fromkeys(names, value))
        assert found == frozenset()


@pytest.mark.parametrize(
    "upstream",
    [
        {"url": "https://h.example${NOTION_TOKEN}/mcp"},
        {"url": "https://h.example/x${NOTION_TOKEN}/mcp"},
        {"command": "x", "args": ["--secret-key", "${NOTION}/x"]},
        {"command": "x", "args": ["--key", "https://h${NOTION}/x.json"]},
        {"command": "x", "args": ["--key", "${NOTION}${OTHER}/x.json"]},
        {"command": "x", "args": ["-c", "curl -u u:${NOTION_TOKEN}/x"]},
        {"command": "x", "env": {"X": "${NOTION_TOKEN}/x.json"}},
    ],
)
def test_secret_that_begins_like_a_folder_is_a_credential(tmp_path: Path, upstream: Json) -> None:
    value = "/s3cr3t+0123456789"
    assert credentials(tmp_path, upstream, NOTION_TOKEN=value, NOTION=value) >= {value}

"""What an upstream's section says in so many words is hidden where it is a secret, and stays where it is a setting."""

import json
from base64 import b64encode

import pytest

from manifests.json_value import Json
from manifests.upstream_sections import HttpUpstream, StdioUpstream
from tests.upstreams.at_once import at_once
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams.http_credentials import ConfiguredHeaders, RenewedHeaders, secrets_in
from upstreams.masking import CredentialMask
from upstreams.scrubber import Scrubber

PASSWORD = "hunter2secret"
BASIC = b64encode(f"app:{PASSWORD}-and-long".encode()).decode()


def by_url(url: str = "https://h/mcp", **headers: str) -> Scrubber:
    return Scrubber.for_upstream(HttpUpstream(url=url, headers=headers))


def by_command(*args: str, **env: str) -> Scrubber:
    return Scrubber.for_upstream(StdioUpstream(command="x", args=args, env=env))


@pytest.mark.parametrize(
    "scrub",
    [
        by_command(f"postgresql://app:{PASSWORD}@db/x"),
        by_command(f"--db=postgresql://app:{PASSWORD}@db/x"),
        by_command("-c", f"server --db postgresql://app:{PASSWORD}@db/x"),
        by_command(DATABASE_URL=f"postgresql://app:{PASSWORD}@db/x"),
        by_command(OPENAPI_MCP_HEADERS=f'{{"Authorization": "Bearer {PASSWORD}", "Notion-Version": "2022"}}'),
        by_url(Cookie=f"session={PASSWORD}; theme=dark"),
        by_url(Cookie=f"theme=dark; sid={PASSWORD}"),
        by_url(Authorization=f"Basic {b64encode(f'app:{PASSWORD}'.encode()).decode()}"),
        Scrubber([f"postgresql://app:{PASSWORD}@db/x"]),
    ],
)
def test_secret_within_a_longer_text_is_hidden_by_itself(scrub: Scrubber) -> None:
    for told in (f"no {PASSWORD}-0123456789", f"no postgresql://app:{PASSWORD}@db:5432/x"):
        assert PASSWORD not in scrub(told)
        assert PASSWORD not in scrub.content(told)
    assert scrub("theme: dark, Notion-Version") == "theme: dark, Notion-Version"


SAID = '{"private": true, "issues": ["open"], "mode": "live", "released": "2022-06-28", "note": "Acme delivered 1000"}'


@pytest.mark.parametrize(
    "scrub",
    [
        by_url(**{"X-MCP-Readonly": "true", "X-MCP-Toolsets": "issues", "Notion-Version": "2022-06-28"}),
        by_url("https://h/mcp?readonly=true&mode=live", **{"User-Agent": "Acme Issue Agent"}),
        by_url(**{"X-Auth-Enabled": "true", "X-Token-Count": "1000"}),
        by_command("postgres://live:live@h/live", MODE="live"),
        Scrubber(["true", "1000"]),
    ],
)
def test_settings_stay_in_what_is_worked_with(scrub: Scrubber) -> None:
    assert scrub.content(SAID) == SAID
    assert scrub.content(f"no {PASSWORD}") == f"no {PASSWORD}"


def test_secrets_do_not_stay_in_what_is_worked_with() -> None:
    scrub = by_url(f"https://h/mcp?api_key={PASSWORD}", **{"X-Api-Key": "key-of-header"})
    assert scrub.content(f'["{PASSWORD}", "key-of-header", true]') == '["[hidden]", "[hidden]", true]'


def test_user_beside_what_is_no_password_is_a_token() -> None:
    for url in ("https://ghp_0123456789abcd:x-oauth-basic@h/mcp", "https://short:x-oauth-basic@h/mcp"):
        told = by_url(url)("no ghp_0123456789abcd, short: x-oauth-basic")
        assert told in ("no [hidden], short: x-oauth-basic", "no ghp_0123456789abcd, [hidden]: x-oauth-basic")


@pytest.mark.parametrize("told", ["row 31000 of 10001", "invalid information", "reproductions"])
def test_setting_is_no_part_of_a_word(told: str) -> None:
    assert by_command(LEVEL="info", BATCH="1000", MODE="production", SEP="    ")(told) == told


@pytest.mark.parametrize("around", ['"{}"', "\\n{}\\n", "%20{}%20", "\\u00e9{}.", "={},", "\\u00e9{}\\u00e9"])
def test_setting_is_hidden_as_a_word_of_its_own(around: str) -> None:
    assert by_command(MODE="Pr0duction")(around.format("Pr0duction")) == around.format("[hidden]")


@pytest.mark.parametrize(
    "scrub",
    [
        by_command(DB_PASSWORD=PASSWORD),
        by_command(WHATEVER=PASSWORD),
        by_command(MODE=PASSWORD, WHATEVER=PASSWORD),
        by_url(**{"X-Access": PASSWORD}),
        by_url(f"https://h/mcp?code={PASSWORD}"),
        Scrubber([PASSWORD]),
    ],
)
@pytest.mark.parametrize(
    "told",
    [
        "\x1b[31m{}\x1b[0m",
        "\\u001b[1m{}x",
        "\u5bc6\u7801{}\u9519\u8bef",
        "mysql -p{}",
        "%252F{}",
        "caf\u00e9{}",
    ],
)
def test_what_is_no_setting_by_its_name_is_hidden_whatever_stands_beside_it(
    scrub: Scrubber, told: str
) -> None:
    assert scrub(told.format(PASSWORD)) == told.format("[hidden]")
    assert scrub.start(told.format(PASSWORD)) == told.format("[hidden]")


SETTINGS = {
    "RUST_LOG": "info",
    "POSTGRES_USER": "user",
    "MAX_ROWS": "1000",
    "GIT_BRANCH": "main",
    "LOG": "error",
}


def test_words_and_numbers_are_no_parts_of_others_in_errors() -> None:
    told = 'invalid information: no relation "users" in row 31000 of the domain, remaining errors: 2'
    assert by_command("postgresql://postgres:postgres@localhost/x", **SETTINGS)(told) == told
    assert by_url(**SETTINGS)(told) == told
    assert by_url("https://h/mcp?user=user&level=info")(told) == told


def test_word_of_a_url_that_is_user_and_password_stays() -> None:
    told = 'no database "postgres", see https://www.postgresql.org/docs'
    assert by_command("postgresql://postgres:postgres@localhost/x")(told) == told


@pytest.mark.parametrize(
    "around", ["\x1b[1;31m{}\x1b[0m", "\\u001b[1m{}\\u001b[0m", "\u5bc6\u7801{}\u9519\u8bef", "caf\u00e9{}"]
)
def test_word_is_one_beside_colours_and_other_scripts(around: str) -> None:
    assert by_command(WHATEVER="correcthorse")(around.format("correcthorse")) == around.format("[hidden]")


def test_number_that_a_reference_gave_is_hidden_whatever_stands_beside_it() -> None:
    assert Scrubber(["48291734"])("PIN48291734 b48291734") == "PIN[hidden] b[hidden]"


def test_secret_is_hidden_where_looking_for_words_would_take_too_long() -> None:
    signs = "\n".join(
        "!$&/()=?"[number % 8 :] + "!$&/()=?*#"[number % 7 :] + "#*" * (number % 3) for number in range(600)
    )
    scrub = by_command(DB_PASSWORD=PASSWORD, LOCALE=signs)
    for length in range(3_000, 3_006):
        told = scrub.start((f"login with {PASSWORD} failed: " + "the server answered why " * 400)[:length])
        assert PASSWORD not in told


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("amqp://app:it'sasecret1@h/mcp", "it'sasecret1"),
        ('https://app:it"sasecret1@h/mcp', 'it"sasecret1'),
        ("https://app:a<b>csecret1@h/mcp", "a<b>csecret1"),
        ("https://me@corp.example:hunter2secret@h/mcp", "hunter2secret"),
        ("https://app:tickets1@h/tickets1/mcp", "tickets1"),
        ("https://hunter2:hunter2@h/mcp", "hunter2"),
        ("nats://u:hunter2secret@h1:4222,nats://u:hunter2secret@h2:4222", "hunter2secret"),
        ("https://app:p%40sswordx@h/mcp", "p@sswordx"),
    ],
)
def test_password_of_a_url_is_hidden_in_errors(url: str, password: str) -> None:
    by_urls = [by_url(url)] if url.startswith("http") else []
    for scrub in (*by_urls, by_command(url), by_command(f"--db={url}"), by_command(URL=url)):
        assert scrub(f"no login with x{password}x") == "no login with x[hidden]x"


@pytest.mark.parametrize(
    "text",
    [
        "--auth=required",
        "--session=persistent",
        "--pin=disabled",
        "--primary-key=customer_id",
        "--key=customer_id_2024",
        "--api-key-env=ACME_KEY_NAME",
        "--api-key=ACME_KEY_2",
        "--token=/home/me/token-1.json",
        "auth: disabled",
        "token: required",
        '{"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIB"}',
        '{"token": "-----BEGIN CERTIFICATE-----\\nMIIB"}',
        "postgres://app:required@db/x",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    ],
)
def test_ordinary_words_within_a_longer_text_stay(text: str) -> None:
    told = "required persistent disabled customer_id_2024 ACME_KEY_NAME ACME_KEY_2 /home/me/token-1.json"
    told += " -----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----"
    assert (
        by_command(text).content(told)
        == by_command(X=text).content(told)
        == Scrubber([text]).content(told)
        == told
    )
    if "://" not in text:
        assert by_command(text)(told) == told


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ("STRIPE_KEY={}", "sk_live_4eC39HqLyjWDarjtT1"),
        ("SLACK_SIGNING_SECRET={}", "8f742231b10e8888abcd99yyyzzz85a5"),
        ("AWS_SECRET_ACCESS_KEY={}", "/wJalrXUtnFEMI0K7MDENG0bPxRfiCYEXAMPLEKEY"),
        ("PRIVATE_KEY={}", "0x4c0883a69102937d6231471b5dbb6204fe512961708279"),
        ("JIRA_PAT={}", "ATATT3xFfGF0T4JNjAfjMs7Dx"),
        ("--secret={}", "correct-horse7battery"),
        ("--key={}", "9f86d081884c7d65"),
        ("Cookie: session={}", "0123456789abcdef01"),
        ("--header=X-Auth-Key: {}", "9f86d081884c7d65"),
        ('{{"password": "{}"}}', "abcdefghijklmnop"),
        ("Server=db;Password={};X=1", "CorrectHorseBattery"),
        ("Authorization: Bearer {}", "AbCdEfGhIjKlMnOpQrStUvWx"),
        ("--password={}", "Tr0ub4dor&3x"),
        ("PGPASSWORD={}", "xK}9;aa, 7Qm2"),
        ("SMTP_PASS={}", "Summerbreeze"),
        ("ADO_PAT={}", "abcdefghijklmnopqrstuvwxyz"),
    ],
)
def test_secret_that_an_argument_says_is_hidden_by_itself(said: str, secret: str) -> None:
    scrub = by_command("-e", said.format(secret))
    assert scrub(f"refused: {secret}!") == scrub.content(f"refused: {secret}!") == "refused: [hidden]!"


@pytest.mark.parametrize(
    ("option", "secret"),
    [("--access-token", "sbp_0123456789abcdef"), ("--password", "Summerbreeze"), ("-token", "a-b-c-1&2")],
)
def test_secret_behind_its_option_is_hidden(option: str, secret: str) -> None:
    scrub = by_command("-y", option, secret, "--read-only", "project-ref-2024")
    assert scrub(f"{option} {secret}, project-ref-2024") == f"{option} [hidden], project-ref-2024"


@pytest.mark.parametrize(
    "said",
    [
        "POSTGRES_PASSWORD=postgres",
        "Host=localhost;Username=postgres;Password=postgres",
        "--password=postgres",
    ],
)
def test_word_that_is_said_to_be_a_password_is_hidden_only_as_a_word_and_in_errors(said: str) -> None:
    for scrub in (by_command("-e", said), by_command(X=said), Scrubber([said])):
        assert scrub("postgresql://h, no postgres") == "postgresql://h, no [hidden]"
        assert scrub.content("PostgreSQL, postgres_fdw, postgres") == "PostgreSQL, postgres_fdw, postgres"


def test_folder_of_windows_is_no_text_of_two_lines() -> None:
    assert Scrubber(["C:\\Users\\jo\\notes"])("C:\\Users\\jo\\AppData") == "C:\\Users\\jo\\AppData"


@pytest.mark.parametrize(
    "scrub",
    [
        by_url(**{"X-Database": "postgres://app:correcthorse@db/x"}),
        by_url("https://h/mcp?db=postgres%3A%2F%2Fapp%3Acorrecthorse%40db"),
        by_command("--db=postgres://app:correcthorse@db/x"),
        Scrubber(["postgres://app:correcthorse@db/x"]),
    ],
)
def test_password_of_a_url_that_is_a_word_is_hidden_in_errors_alone(scrub: Scrubber) -> None:
    assert scrub("no login with correcthorse") == "no login with [hidden]"
    assert scrub.content("a correcthorse") == "a correcthorse"


def test_key_in_one_line_is_hidden_in_several() -> None:
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7VJTU"
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    scrub = Scrubber([key.replace("\n", "\\n")])
    for told in (key, key.replace("\n", "\\n"), json.dumps(key)):
        assert "MIIEv" not in scrub(told) and "AASCB" not in scrub(told)


@pytest.mark.parametrize(
    "said", ["--api-key={}", "--token={}", "Server=db;Password={};X=1", '{{"apiKey": "{}"}}']
)
def test_secret_within_an_argument_is_hidden(said: str) -> None:
    scrub = by_command(said.format("sk-hunter2secret"))
    assert scrub("no sk-hunter2secret") == scrub.content("no sk-hunter2secret") == "no [hidden]"


@pytest.mark.anyio
async def test_what_is_hidden_of_a_renewed_header_is_what_was_of_the_first() -> None:
    async def renew() -> RenewedHeaders:
        return RenewedHeaders({"Authorization": "Bearer short-tok-2"}, {"Bearer short-tok-2"})

    first = {"Authorization": "Bearer short-tok-1"}
    scrub = by_url(**first)
    kept = ConfiguredHeaders(first, (), scrub, renew)
    assert await kept.renewed(first)
    assert scrub("no short-tok-1, short-tok-2") == "no [hidden], [hidden]"


def masked(secrets: frozenset[str] | set[str], told: str) -> Json:
    return json.loads(at_once(CredentialMask(secrets)(json.dumps(told).encode())))


def test_login_of_a_basic_header_is_taken_out_of_results_whichever_way_it_is_told() -> None:
    secrets = secrets_in({"Authorization": f"Basic {BASIC}"}, ())
    assert masked(secrets, f"{BASIC} app:{PASSWORD}-and-long Basic") == "[hidden] [hidden] Basic"
    assert (
        masked(secrets_in({"Authorization": "AWS4-HMAC-SHA256 x"}, ()), "AWS4-HMAC-SHA256")
        == "AWS4-HMAC-SHA256"
    )


@pytest.mark.parametrize("given", ["{}\n", " {}\r\n", "Bearer {} ", "Token token={}"])
def test_credential_is_taken_out_of_results_without_what_stands_around_it(given: str) -> None:
    token = "ghp_0123456789abcdefghij"
    assert masked({given.format(token)}, f"TOKEN={token}") == "TOKEN=[hidden]"


@pytest.mark.anyio
async def test_login_that_is_sent_for_a_url_is_taken_out_of_results() -> None:
    server = RawHttpServer()
    server.result_text = json.dumps({"content": [], "structuredContent": {"seen": f"Basic {BASIC}"}})
    async with http_peer(server.app) as peer:
        url = f"http://app:{PASSWORD}-and-long@127.0.0.1:{peer.port}/mcp"
        async with fleet_of(real=HttpUpstream(url=url)) as fleet:
            result = await fleet["real"].call("echo", {}, seconds=DEADLINE_SECONDS)
    assert result.structured == {"seen": "Basic [hidden]"}

"""Credentials of an upstream appear in no output of the portal, whatever the upstream does with them."""

import json
import shlex
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

import anyio.to_thread
import pytest
from mcp_types import CallToolResult
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from manifests.json_value import Json
from portal.runs.answer import Answer
from sandbox_runtime.call_port import CallError
from sandbox_runtime.result import RunError
from tests.portal.app.test_http_app import client, served
from tests.portal.commands import PortalCommand, finished
from tests.portal.peers import Opened, Peer, opened, raw, raw_tools, tool, write_manifest
from tests.portal.peers import text as saying
from tests.portal.runs.test_waiting import answer_of
from tests.upstreams.oauth_peer import logged_in, protected
from tests.upstreams.peers import http_peer
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams.redaction import Redaction

pytestmark = pytest.mark.anyio

CANARY = 'canary-"5b1e zyx9"-\u00fc'
"""It looks different in JSON and in a URL."""

SCRIPT = """
for call in (store.error(code=1, message=SECRET), store.crash()):
    try:
        await call
    except ToolError as error:
        print(error)
"""


def reference(text: str) -> str:
    return f"${{command:{sys.executable} -c {shlex.quote(f'print({text!a})')}}}"


def entry(env: Json, **behaviour: Json) -> dict[str, Json]:
    return {**raw(tools=raw_tools("error", "crash"), **behaviour), "env": env, "connect_seconds": 20}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Upstreams that get the canary, and tell it wherever they can."""
    env: Json = {"KEY": f"x{reference(CANARY)}y"}
    said = f"token {CANARY} and {json.dumps(CANARY)}"
    upstreams = {
        "store": entry(env, stderr=said, banner=f"token {CANARY}"),
        "broken": entry(env, stderr=said, exits_with=3),
        "other": entry({}, stderr=said, exits_with=3),
    }
    server: Json = {"token": reference("canary-of-the-portal")}
    write_manifest(tmp_path, upstreams, audit={"to": "audit.jsonl"}, server=server)
    return tmp_path


COMMANDS = """check, check --json, search, search --json error, stubs, explain store.error, run script.py, \
run script.py --json, lock"""


@pytest.mark.parametrize("arguments", COMMANDS.split(", "))
def test_no_command_tells_it(portal: PortalCommand, folder: Path, arguments: str) -> None:
    script = SCRIPT.replace("SECRET", repr(f"no: {CANARY}"))
    # The script itself holds the canary here, so that the upstream repeats it in an error.
    (folder / "script.py").write_text(script)
    done = portal(*arguments.split(), "--log-level", "info", cwd=folder)
    told = done.stdout + done.stderr
    assert "hidden" in told or arguments in ("lock", "stubs", "explain store.error"), told
    kept = [path.read_text() for path in folder.iterdir() if path.suffix in (".jsonl", ".lock")]
    for each in (told, *kept):
        assert "canary" not in each
        assert "zyx9" not in each


@pytest.mark.usefixtures("own_state")
async def test_no_token_passes_from_client_to_upstream_or_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Over HTTP, with an upstream that wants OAuth and one with headers; each repeats what it was sent as an error."""
    inbound = "canary-of-the-client"
    raw_server = RawHttpServer()
    async with protected(Peer()) as server, recorded(raw_server.app) as (plain_port, plain):
        await logged_in(server.spec())
        upstreams: dict[str, Json] = {
            "tickets": {"url": server.url, "oauth": {}},
            "plain": {"url": f"http://127.0.0.1:{plain_port}/mcp", "headers": {"X-Key": "canary-of-plain"}},
        }
        async with opened(tmp_path, upstreams, server={"token": inbound}) as portal:
            answers = [await over_http(portal, inbound, "await tickets.echo()\nawait plain.echo()")]
            server.authorization.expire()
            answers.append(await over_http(portal, inbound, "await tickets.echo()"))
            assert ["done" in answer for answer in answers] == [True, True], answers

            async def repeats(request: Request) -> Response:
                return PlainTextResponse(f"no: {request.headers['authorization']}", status_code=403)

            server.answers["/mcp"] = repeats
            answers.append(await over_http(portal, inbound, "await tickets.echo()"))
            answers.append(json.dumps(await portal.search()))
            assert "hidden" in answers[2]
    sent = [*server.requests, *plain]
    assert sent and not any(inbound in value for headers in sent for value in headers.values())
    assert any("canary-of-plain" in headers.values() for headers in plain)
    told = [*answers, *capfd.readouterr()]
    for secret in [*server.authorization.tokens, inbound, "canary-of-plain"]:
        assert not any(secret in each for each in told)


async def over_http(portal: Opened, token: str, code: str) -> str:
    """Everything that execute_code answers to a client with a bearer token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with served(portal, token) as origin, client(origin, headers=headers) as own:
        return (await own.call_tool("execute_code", {"code": code})).model_dump_json()


@asynccontextmanager
async def recorded(app: ASGIApp) -> AsyncIterator[tuple[int, list[dict[str, str]]]]:
    """An HTTP server's port, and the headers of all that it is sent."""
    requests: list[dict[str, str]] = []

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            requests.append({key.decode(): value.decode() for key, value in scope["headers"]})
        await app(scope, receive, send)

    async with http_peer(handle) as peer:
        yield peer.port, requests


@asynccontextmanager
async def gate(folder: Path, server: RawHttpServer, query: str = "", **more: Json) -> AsyncIterator[Opened]:
    """A portal over this server, with the header that it wants."""
    headers: Json = {"Authorization": server.authorization} if server.authorization else {}
    async with http_peer(server.app) as peer:
        entry: dict[str, Json] = {"url": f"http://127.0.0.1:{peer.port}/mcp{query}", "headers": headers}
        async with opened(folder, {"gate": entry}, **more) as portal:
            yield portal


@pytest.mark.parametrize("as_events", [False, True])
@pytest.mark.parametrize(
    ("token", "spelling"),
    [
        ("canary-of-0123456789", ("/", "\\/")),  # PHP
        ('canary/of"0123456789', ("/", "\\/")),
        ("canary&of<0123456789", ("&", "\\u0026")),  # Go
        ("canary+of/0123456789", ("+", "\\u002B")),  # .NET
    ],
)
async def test_upstream_that_shows_its_requests_shows_scripts_and_stubs_no_token(
    tmp_path: Path, token: str, spelling: tuple[str, str], as_events: bool
) -> None:
    server = RawHttpServer()
    server.as_events = as_events
    server.authorization = f"Bearer {token}"
    shown = json.dumps(f"you sent {server.authorization}").replace(*spelling)
    content = f'[{{"type":"text","text":{shown}}}]'
    server.result_text = f'{{"content":{content},"structuredContent":{{"seen":[{shown}, 7]}}}}'
    server.tools_text = f'[{{"name":"echo","description":{shown},"inputSchema":{{"type":"object"}}}}]'
    async with gate(tmp_path, server) as portal:
        assert await portal.result_of("await gate.echo()") == {"seen": ["you sent Bearer [hidden]", 7]}
        assert "you sent Bearer [hidden]" in await portal.search_text("gate.echo")


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("${CANARY_KEY}", "[hidden]"),
        ("key=${CANARY_KEY}; of=us", "key=[hidden]; of=us"),
        ("${command:echo canary-of-0123456789}", "[hidden]"),
        ("canary-of-0123456789", "canary-of-0123456789"),  # no reference says that it is a secret
    ],
)
async def test_key_in_any_header_is_shown_to_no_script(tmp_path: Path, written: str, seen: str) -> None:
    peer = Peer(tool("show"))
    async with recorded(peer.server.streamable_http_app()) as (port, requests):
        peer.acts["show"] = lambda arguments: _key_of(requests)
        entry: dict[str, Json] = {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Api-Key": written}}
        environ = {"CANARY_KEY": "canary-of-0123456789"}
        async with opened(tmp_path, {"tickets": entry}, environ=environ) as portal:
            assert await portal.result_of("await tickets.show()") == f"you sent {seen}"


@pytest.mark.parametrize(
    ("args", "env", "is_hidden"),
    [
        ([], {"STORE_KEY": "${CANARY}"}, True),
        ([], {"DATABASE_URL": "postgresql://app:${CANARY}@db/x"}, True),
        ([], {"STORE": "${command:echo canary-of-0123456789}"}, True),
        ([], {"OPENAPI_MCP_HEADERS": '{"Authorization": "Bearer ${CANARY}", "Notion-Version": "1"}'}, True),
        (["--api-key", "${CANARY}"], {}, True),
        (["--config=${command:echo canary-of-0123456789}"], {}, True),
        (["${STORE_TOKEN}"], {}, True),
        ([], {"STORE_KEY": "canary-of-0123456789"}, False),  # no reference says that it is a secret
        ([], {"BUCKET": "${CANARY:-mine}"}, False),  # what has a default is a setting
    ],
)
async def test_child_that_shows_how_it_was_started_shows_scripts_and_stubs_no_credential(
    tmp_path: Path, args: list[Json], env: Json, is_hidden: bool
) -> None:
    canary = "canary-of-0123456789"
    shown = raw(tools=[{"name": "echo", "description": f"With {canary}.", "inputSchema": {"type": "object"}}])
    environ = {"CANARY": canary, "STORE_TOKEN": canary}
    entry: dict[str, Json] = {**shown, "args": [*shown["args"], *args], "env": env}
    async with opened(tmp_path, {"store": entry}, environ=environ) as portal:
        seen = "[hidden]" if is_hidden else canary
        assert await portal.result_of(f"await store.echo(text='{canary}')") == {"text": seen}
        assert f"With {seen}." in await portal.search_text("store.echo")


@pytest.mark.parametrize(("query", "is_hidden"), [("key=${CANARY}", True), ("folder=${CANARY:-mine}", False)])
async def test_key_in_the_url_is_shown_to_no_script(tmp_path: Path, query: str, is_hidden: bool) -> None:
    canary = "canary-of-0123456789"
    server = RawHttpServer()
    server.result_text = f'{{"content":[],"structuredContent":{{"seen":"{canary}"}}}}'
    async with gate(tmp_path, server, f"?{query}", environ={"CANARY": canary}) as portal:
        assert await portal.result_of("await gate.echo()") == {"seen": "[hidden]" if is_hidden else canary}


@pytest.mark.parametrize("canary", ["-----BEGIN KEY-----\ncanary/0123\n", '{"key": "canary-\u00fc"}'])
async def test_key_of_many_lines_is_hidden_also_in_json_within_a_text(tmp_path: Path, canary: str) -> None:
    """This server answers like that."""
    entry: dict[str, Json] = {**raw(tools=raw_tools("echo")), "env": {"STORE_KEY": "${CANARY}"}}
    async with opened(tmp_path, {"store": entry}, environ={"CANARY": canary}) as portal:
        assert await portal.result_of(f"await store.echo(text={canary!r})") == {"text": "[hidden]"}


async def test_key_is_hidden_also_in_json_that_a_server_encoded_twice(tmp_path: Path) -> None:
    server, canary = RawHttpServer(), 'canary-"0123"-\\-\u00fc'
    text = json.dumps(json.dumps({"key": canary}))
    server.result_text = json.dumps({"content": [{"type": "text", "text": text}]})
    async with gate(tmp_path, server, "?key=${CANARY}", environ={"CANARY": canary}) as portal:
        assert await portal.result_of("await gate.echo()") == {"key": "[hidden]"}


@pytest.mark.parametrize(
    "written",
    [
        "zk3+pQ9/abc\\u0026def\\u003c==",  # Go
        "zk3+pQ9/abc\\u0026def\\u003c\\u003d\\u003d",  # Gson
        "zk3\\u002BpQ9/abc\\u0026def\\u003C==",  # .NET
    ],
)
async def test_key_is_hidden_also_in_json_that_is_escaped_for_html(tmp_path: Path, written: str) -> None:
    server = RawHttpServer()
    text = f'{{"key":"{written}"}}'
    server.result_text = json.dumps({"content": [{"type": "text", "text": text}]})
    environ = {"CANARY": "zk3+pQ9/abc&def<=="}
    async with gate(tmp_path, server, "?key=${CANARY}", environ=environ) as portal:
        assert await portal.result_of("await gate.echo()") == {"key": "[hidden]"}
        block = (await portal.result_of("return portal.blocks(await gate.echo())"))[0]
        assert block["text"] == '{"key":"[hidden]"}'


@pytest.mark.parametrize("setting", ["stdout", "result", "content"])
async def test_setting_that_is_a_word_of_answers_leaves_them_readable(tmp_path: Path, setting: str) -> None:
    entry: dict[str, Json] = {**raw(tools=raw_tools("echo")), "env": {"LOG_TO": "${LOG_TO}"}}
    code = "print(await store.echo(text='a')); return 1"
    async with opened(tmp_path, {"store": entry}, environ={"LOG_TO": setting}) as portal:
        run = (await portal.call("execute_code", code=code, background=True)).structured_content["run_id"]
        answer = await answer_of(portal, run)
        assert (answer["result"], answer["stdout"]) == (1, "{'text': 'a'}\n")


@pytest.mark.parametrize("kind", [Answer, RunError, CallError])
def test_names_of_what_is_kept_are_no_secrets(kind: type) -> None:
    names = [each.name for each in fields(kind)]
    assert [*map(Redaction(names), names)] == names


@pytest.mark.parametrize("secret", ["script", "answer", "source", "prompt", "sha256", "refuse"])
def test_secret_that_is_only_a_part_of_such_a_word_is_hidden(secret: str) -> None:
    assert Redaction([secret])(f"the password is {secret}") == "the password is [hidden]"


async def _key_of(requests: list[dict[str, str]]) -> CallToolResult:
    return saying(f"you sent {requests[-1]['x-api-key']}")


@pytest.mark.parametrize("token", ["short", "1234567890123456789"])
async def test_short_secret_and_a_number_stay(tmp_path: Path, token: str) -> None:
    server = RawHttpServer()
    server.authorization = f"Bearer {token}"
    value = token if token.isdigit() else json.dumps(token)
    server.result_text = f'{{"content":[],"structuredContent":{{"seen":{value}}}}}'
    async with gate(tmp_path, server) as portal:
        assert await portal.result_of("await gate.echo()") == {"seen": json.loads(value)}


@pytest.mark.usefixtures("own_state")
async def test_token_that_was_renewed_is_shown_to_no_script(tmp_path: Path) -> None:
    peer = Peer(tool("show"))
    async with protected(peer) as server:

        async def shown() -> CallToolResult:
            return saying(f"you sent {server.requests[-1]['authorization']}")

        peer.acts["show"] = lambda arguments: shown()
        await logged_in(server.spec())
        async with opened(tmp_path, {"tickets": {"url": server.url, "oauth": {}}}) as portal:
            for _ in range(2):
                assert await portal.result_of("await tickets.show()") == "you sent Bearer [hidden]"
                server.authorization.expire()


KEY = "canary/5b1e+zyx9 \u00fc"
SENT = [b64encode(pair.encode()).decode() for pair in (f"user:{KEY}", f"{KEY}:")]
PARTS = ("canary", "zyx9", quote(KEY, safe=""), *SENT)
ENVIRON = {"KEY": KEY, "QUOTED": quote(KEY, safe="")}


def assert_hidden(*told: Json) -> None:
    for each in told:
        text = each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
        assert "[hidden]" in text
        for part in PARTS:
            assert part not in text and part not in unquote(text)


@pytest.mark.parametrize("before", [0, 100, 190, 290])
async def test_argument_that_a_child_repeats_on_its_way_down(
    tmp_path: Path, before: int, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = raw(stderr="x" * before + " ${KEY}", exits_with=3)
    async with opened(tmp_path, {"up": entry}, environ=ENVIRON, audit={"to": "audit.jsonl"}) as portal:
        searched = await portal.search()
        error = await portal.error_of("await up.echo()")
        state, said = portal.portal.fleet["up"].state.detail, portal.portal.fleet["up"].stderr_tail()
    for text in (json.dumps(searched), json.dumps(error), state, capsys.readouterr().out):
        assert "exited with status 3" in text
        assert not any(part in text for part in PARTS)
    assert not any(part in said for part in PARTS)
    if before < 290:  # else the line was cut before it
        assert_hidden(said)
    assert "canary" not in (tmp_path / "audit.jsonl").read_text()


PLACES = {
    "path": "http://127.0.0.1:{port}/at/${{QUOTED}}/mcp",
    "query": "http://127.0.0.1:{port}/mcp?k=${{QUOTED}}",
    "user": "http://${{QUOTED}}@127.0.0.1:{port}/mcp",
    "password": "http://user:${{QUOTED}}@127.0.0.1:{port}/mcp",
}


async def tell_all(request: Request) -> Response:
    """Refuses everything, and says what it was asked."""
    said = f"{request.headers.get('authorization', '-')} {request.url} {unquote(str(request.url))}"
    return PlainTextResponse(said, status_code=400)


@pytest.mark.parametrize("place", PLACES)
async def test_url_that_a_server_repeats(tmp_path: Path, place: str) -> None:
    app = Starlette(routes=[Route("/{anything:path}", tell_all, methods=["GET", "POST", "DELETE"])])
    async with http_peer(app) as peer:
        entry: dict[str, Json] = {"url": PLACES[place].format(port=peer.port)}
        async with opened(tmp_path, {"up": entry}, environ=ENVIRON) as portal:
            searched = await portal.search()
            error = await portal.error_of("await up.echo()")
            state = portal.portal.fleet["up"].state.detail
        run, debug = partial(finished, cwd=tmp_path, env=ENVIRON), ("--log-level", "debug")
        told = (partial(run, "check", *debug), partial(run, "explain", "up.echo", *debug))
        commands = [await anyio.to_thread.run_sync(each) for each in told]
    assert_hidden(searched["notices"], state, commands[0].stderr)
    for text in (json.dumps(error), *(done.stdout + done.stderr for done in commands)):
        assert not any(part in text for part in PARTS)

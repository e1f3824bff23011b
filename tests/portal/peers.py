"""A portal in this process, behind an MCP client, with upstreams that are real MCP servers.

`Peer` is one of the official SDK on a loopback port whose tools are functions of the test; `raw_server` and others of
`tests/upstreams/peers.py` are programs over stdio.
"""

import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import yaml
from mcp import Client
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from starlette.applications import Starlette

from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.manifest import Manifest
from portal.app.composition import open_portal
from portal.app.http_access import HttpAccess
from portal.app.serving import LazyConsole, build_http_app
from portal.calls.broker import Broker
from portal.calls.caller_upstreams import CallerUpstreams
from portal.calls.fetch import Fetchers
from portal.calls.pipeline import Pipeline
from portal.calls.run import Gateway, RunContext
from portal.catalog.authority import Authorization
from portal.catalog.snapshot import Snapshot
from portal.identity.accounts import Accounts
from portal.library.observed import Observations
from portal.middleware import Middleware
from portal.records.audit.audit import NO_RUN_AUDIT, RunAudit
from portal.records.ledger import Ledger
from portal.server.portal import Portal
from portal.server.server import build_server
from tests.one_sandbox import shared
from tests.upstreams.peers import RAW_SERVER, Changing, http_peer
from upstreams.secret_sources import fetch_secrets

DEADLINE_SECONDS = 30

Act: TypeAlias = Callable[[dict[str, Json]], Awaitable[CallToolResult]]
"""The behaviour of a peer's tool, given its arguments."""

ANYTHING: dict[str, Json] = {"type": "object"}


def tool(name: str, schema: dict[str, Json] | None = None, **more: Json) -> Tool:
    return Tool(name=name, input_schema=schema or ANYTHING, **more)


def schema(*required: str, **properties: Json) -> dict[str, Json]:
    """The inputSchema of an object with these properties."""
    return {"type": "object", "properties": properties, "required": list(required)}


def structured(value: Json) -> CallToolResult:
    """A result as servers of today send it, in both forms."""
    return CallToolResult(content=[TextContent(text=json.dumps(value))], structured_content=value)


def text(words: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=words)], is_error=is_error)


class Peer(Changing):
    """An upstream in this process. Its tools answer their own arguments unless the test says otherwise.

    `calls` holds `(tool, arguments)` of every call that arrived, `cancelled` the tools whose call was cancelled.
    """

    def __init__(self, *tools: Tool, instructions: str | None = None, **acts: Act) -> None:
        self.tools = list(tools) or [tool("echo")]
        self.acts = acts
        self.calls: list[tuple[str, dict[str, Json]]] = []
        self.cancelled: list[str] = []
        self.server: Server[Any] = Server(
            "peer", version="1", instructions=instructions, on_list_tools=self._list, on_call_tool=self._call
        )

    async def _list(self, context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=self.tools)

    async def _call(self, context: Any, params: Any) -> CallToolResult:
        arguments = params.arguments or {}
        self.calls.append((params.name, arguments))
        self.tell()
        try:
            act = self.acts.get(params.name)
            return structured(arguments) if act is None else await act(arguments)
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(params.name)
            self.tell()
            raise


class Barrier:
    """A tool that answers only when `size` calls of it are there at once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.most = 0
        self._here = 0
        self._all_here = anyio.Event()

    async def __call__(self, arguments: dict[str, Json]) -> CallToolResult:
        self._here += 1
        self.most = max(self.most, self._here)
        if self._here >= self.size:
            self._all_here.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            await self._all_here.wait()
        self._here -= 1
        return structured(arguments)


async def never(arguments: dict[str, Json]) -> CallToolResult:
    """A tool that does not answer."""
    await anyio.sleep_forever()
    return text("never")


def raw(**behaviour: Json) -> dict[str, Json]:
    """A manifest's entry for `tests/upstreams/raw_server.py`."""
    return {"command": sys.executable, "args": [str(RAW_SERVER), json.dumps(behaviour)]}


def raw_tools(*names: str) -> list[Json]:
    """Tools that the raw server knows, taking anything."""
    return [{"name": name, "inputSchema": ANYTHING} for name in names]


def sleeper(behaviour: Path) -> dict[str, Json]:
    """A lazy upstream that lists what the file says when it is started."""
    code = f"import runpy, sys; sys.argv[1:] = [open({str(behaviour)!r}).read()]; runpy.run_path({str(RAW_SERVER)!r})"
    return {"command": sys.executable, "args": ["-c", code], "start": "lazy"}


class LateTool:
    """A lazy upstream whose one tool, `crash`, declares something else than it was known by once a call starts it.

    What the tool does is to write the file `effect`.
    """

    def __init__(self, folder: Path, name: str = "raw") -> None:
        self.effect = folder / "effect"
        self.upstreams: dict[str, Peer | dict[str, Json]] = {name: sleeper(folder / "behaviour.json")}
        self.call = f"await {name}.crash(acts_on={str(self.effect)!r})"
        self._folder = folder

    def declares(self, **declared: Json) -> None:
        [crash] = raw_tools("crash")
        (self._folder / "behaviour.json").write_text(json.dumps({"tools": [{**crash, **declared}]}))

    async def becomes(self, before: Json, after: Json) -> None:
        """A portal saw it with these annotations; the next one finds it with those."""
        self.declares(annotations=before)
        async with opened(self._folder, self.upstreams) as portal:
            await portal.search("crash")
        self.declares(annotations=after)


def run_context(
    accounts: Accounts, snapshot: Snapshot, authorization: Authorization, *middleware: Middleware
) -> RunContext:
    """The context of a run without a client, a session or a store."""
    own, observations = CallerUpstreams(accounts, authorization.authority.manifest), Observations(None)
    gateway = Gateway(accounts, Fetchers(lambda port: False), observations, middleware)
    broker = Broker(own, authorization, observations)
    return RunContext(gateway, snapshot, authorization, own, Ledger(), broker)


@dataclass(frozen=True)
class Opened:
    """A portal and a client of it."""

    portal: Portal
    client: Client

    async def calls(self, *middleware: Middleware, audit: RunAudit = NO_RUN_AUDIT) -> Pipeline:
        """The port for the calls of a run that begins now."""
        own, snapshot = self.portal, await self.portal.catalog.fresh()
        authorization = Authorization(own.authority, set(), audit)
        return Pipeline(run_context(own.accounts, snapshot, authorization, *middleware))

    async def call(self, name: str, **arguments: Json) -> CallToolResult:
        with anyio.fail_after(DEADLINE_SECONDS):
            return await self.client.call_tool(name, arguments)

    async def run(self, code: str, **arguments: Json) -> dict[str, Json]:
        """The whole shape of what execute_code answers."""
        result = await self.call("execute_code", code=code, **arguments)
        answer = result.structured_content
        assert result.is_error is (answer["status"] != "ok")
        return answer

    async def result_of(self, code: str, **arguments: Json) -> Json:
        """The value of a script that must succeed."""
        answer = await self.run(code, **arguments)
        assert answer["status"] == "ok", answer
        return answer["result"]

    async def error_of(self, code: str, **arguments: Json) -> dict[str, Json]:
        """The error of a script that must fail."""
        error = (await self.run(code, **arguments))["error"]
        assert error, "the script succeeded"
        return error

    async def search(self, query: str = "", **arguments: Json) -> dict[str, Json]:
        result = await self.call("docs_search", query=query, **arguments)
        assert not result.is_error, result.content
        return result.structured_content

    async def search_text(self, query: str = "", **arguments: Json) -> str:
        return text_of(await self.call("docs_search", query=query, **arguments))


def text_of(result: CallToolResult) -> str:
    return result.content[0].text


def assert_begun_by_portal(found: str) -> None:
    """Whether each line of an answer of docs_search is indented or begins as the portal's own lines do."""
    own = r"#|    |$|[\w.]+ \d+|(?:async def )?[\w.]+\(|\) -> |class \w+\(TypedDict|\w+ = (?:TypedDict\(|Literal\[)|\}"
    assert all(re.match(own, line) for line in re.split(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", found))


def states(answer: dict[str, Json]) -> list[tuple[str, str]]:
    """The ledger as pairs of function and state."""
    return [(row["function"], row["state"]) for row in answer["calls"]]


def write_manifest(folder: Path, upstreams: dict[str, dict[str, Json]], **sections: Json) -> Path:
    """Write `folder`/portal.yaml, which gives upstreams all the time that a busy machine may take.

    Answers have their whole shape beside the text that a model reads.
    """
    path = folder / "portal.yaml"
    server = {"start_seconds": DEADLINE_SECONDS, "structured": True, **sections.pop("server", {})}
    path.write_text(yaml.safe_dump({"upstreams": upstreams, "server": server, **sections}, sort_keys=False))
    return path


@asynccontextmanager
async def opened(
    folder: Path,
    upstreams: dict[str, Peer | dict[str, Json]] | None = None,
    *,
    mode: str = "auto",
    environ: dict[str, str] | None = None,
    profile: str | None = None,
    bound: Collection[str] = (),
    own: Json = None,
    has_own_sandbox: bool = False,
    **sections: Json,
) -> AsyncIterator[Opened]:
    """A portal over these upstreams, and a client of it. Enter and leave it in one task.

    An upstream is a Peer, which is served here, or a manifest's entry; `own` are the rules of the peers' tools.
    """
    async with AsyncExitStack() as stack:
        entries: dict[str, dict[str, Json]] = {}
        for name, upstream in (upstreams or {}).items():
            if isinstance(upstream, Peer):
                peer = await stack.enter_async_context(http_peer(upstream.server.streamable_http_app()))
                entries[name] = {"url": f"http://127.0.0.1:{peer.port}/mcp", "tools": own}
            else:
                entries[name] = upstream
        manifest = load_manifest(write_manifest(folder, entries, **sections), environ or {}, fetch_secrets)
        sandbox = None if has_own_sandbox else await shared(manifest)

        def existing(manifest: Manifest) -> list[str]:
            return [each for each in bound if each in manifest.portal.profiles]

        portal = await stack.enter_async_context(
            open_portal(manifest, lambda line: None, profile=profile, bound=existing, sandbox=sandbox)
        )
        client = await stack.enter_async_context(Client(build_server(portal), mode=mode))
        yield Opened(portal, client)


def http_app(portal: Portal) -> Starlette:
    """The portal over HTTP, on a loopback address, to whomever its manifest lets in."""
    access = HttpAccess("127.0.0.1", portal.manifest.portal, portal.manifest.caller_claims)
    console = LazyConsole(portal, "1-a", lambda: "http", lambda: access)
    return build_http_app(portal, build_server(portal), lambda: access, console.routes)

"""Offers resources and prompts of upstreams to the portal's own clients (`server.offers`).

A resource's URI is `portal://files/` and its URI at the upstream. A prompt's name is `files.` and its name there. The
rules for scripts apply, and each request is recorded in the audit log like a call.

Source: MCP 2026-07-28, server/resources and server/prompts.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ResourcesListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.names import namespace_of
from portal.base.clean_json import clean_json, clean_text, one_line, printable
from portal.base.tokens import compact
from portal.calls.caller_upstreams import CallerUpstreams
from portal.calls.channel import Context
from portal.calls.resources import ResourceError, Resources, recorded
from portal.catalog.authority import Authorization
from portal.catalog.methods import Method
from portal.identity.accounts import Accounts
from portal.records.audit.audit import Audit
from portal.records.ledger import Entry
from portal.server.callers import caller_of
from portal.server.views import Views
from upstreams.errors import UpstreamRefusedError
from upstreams.upstream import Listed

PREFIX: Final = "portal://"
NOTICES: Final = "dev.mcp-code-portal/notices"
"""The key in a list's `_meta` that says which upstreams are missing, and why."""

PAGE_ROWS: Final = 500
PAGE_CHARACTERS: Final = 500_000
"""Size of a page as JSON, with at least one row. Clients over the older HTTP accept messages of 1 MiB."""

MAX_TEXT_CHARACTERS: Final = 8_200
"""Length of one string in a list, enough for a URI."""

MAX_TITLE_CHARACTERS: Final = 200

MAX_SESSIONS: Final = 1_000
"""Sessions of older revisions that get change notifications. Beyond that, those that listed longest ago are dropped."""

PAUSE_SECONDS: Final = 1.0
"""Minimum time between change notifications."""

SEND_SECONDS: Final = 2.0

_NOT_FOUND: Final = (types.INVALID_PARAMS, -32002)
"""Upstreams' error codes for an unknown name: the first since 2026-07-28, before that the second for resources."""

Answer = TypeVar("Answer", bound=BaseModel)

_LISTS: Final[dict[str, tuple[Method, Listed, type[BaseModel], type[types.PaginatedResult]]]] = {
    "resources": ("resources/list", "resources", types.Resource, types.ListResourcesResult),
    "resource_templates": (
        "resources/list",
        "resourceTemplates",
        types.ResourceTemplate,
        types.ListResourceTemplatesResult,
    ),
    "prompts": ("prompts/list", "prompts", types.Prompt, types.ListPromptsResult),
}
"""The method, the kind of listing, and the types of a row and of the result, by the field with the rows."""


class ListChanges:
    """Notifies clients of changed lists: subscribers since 2026-07-28 (`bus`), before that everyone who listed."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._sessions: OrderedDict[str, ServerSession] = OrderedDict()
        self._changed = anyio.Event()

    def follow(self, context: Context) -> None:
        """Remember that a client has listed, so that it gets change notifications."""
        owner = caller_of(context).owner
        if not owner or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        self._sessions[owner] = context.session
        self._sessions.move_to_end(owner)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def note(self) -> None:
        self._changed.set()

    async def keep(self) -> None:
        """Send change notifications until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            for event in (ResourcesListChanged(), PromptsListChanged()):
                await self.bus.publish(event)
            async with anyio.create_task_group() as tasks:
                for session in [*self._sessions.values()]:
                    tasks.start_soon(_notify_changed, session)
            await anyio.sleep(PAUSE_SECONDS)


async def _notify_changed(session: ServerSession) -> None:
    # A client that does not read must not delay the others.
    with anyio.move_on_after(SEND_SECONDS):
        await session.send_resource_list_changed()
        await session.send_prompt_list_changed()


@dataclass(frozen=True, eq=False)
class ClientResources:
    """Answers requests of the portal's clients, each with the manifest of its profile."""

    views: Views
    audit: Audit
    changes: ListChanges
    accounts: Accounts

    async def listed(
        self, kind: str, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.PaginatedResult:
        """One page of a list, with notices; `kind` is a key of `_LISTS`.

        The cursor is the number of rows before a page. Each page lists anew, so the list may have changed.
        """
        method, listed, model, result = _LISTS[kind]
        self.changes.follow(context)
        cursor = (params.cursor if params else None) or "0"
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise MCPError(types.INVALID_PARAMS, "the cursor is invalid")
        async with self._resources(context, method) as (resources, entry):
            found = await resources.listed(method, {kind: listed}, None, entry)
        # In a thread: hostile rows take long, and other clients must not wait.
        rows, end = await anyio.to_thread.run_sync(self._shown, found[kind], int(cursor), model)
        meta = {NOTICES: found["notices"]} if found["notices"] else None
        more: dict[str, Any] = {kind: rows, "_meta": meta}
        return result(next_cursor=str(end) if end < len(found[kind]) else None, **more)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        namespace, _, uri = params.uri.removeprefix(PREFIX).partition("/")
        namespace = unquote(namespace)  # clients that parse URIs encode its letters
        about = {"uri": params.uri}
        named = namespace if uri and params.uri.startswith(PREFIX) else ""
        key = self._key(context, named, "resource", about)
        async with self._resources(context, "resources/read", about) as (resources, entry):
            contents = await resources.read(key, uri, entry)
        for each in contents:
            theirs = each.get("uri")
            each["uri"] = f"{PREFIX}{namespace}/{theirs if isinstance(theirs, str) else uri}"
        return await self._answer(context, key, types.ReadResourceResult, {"contents": contents})

    async def get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        namespace, _, name = params.name.partition(".")
        key = self._key(context, namespace if name else "", "prompt")
        async with self._resources(context, "prompts/get") as (resources, entry):
            filled = await resources.prompt(key, name, dict(params.arguments or {}), entry)
        return await self._answer(context, key, types.GetPromptResult, filled)

    def _shown(
        self, rows: list[dict[str, Json]], first: int, model: type[BaseModel]
    ) -> tuple[list[BaseModel], int]:
        """The rows of one page that the SDK can send, and the number of rows before the next page."""
        shown: list[BaseModel] = []
        left = PAGE_CHARACTERS
        for number, row in enumerate(rows[first : first + PAGE_ROWS], first):
            try:
                named = self._named(row, namespace_of(row["upstream"]))
                valid = model.model_validate(named, by_name=False)
                left -= len(valid.model_dump_json(by_alias=True, exclude_none=True))
            except (ValidationError, ValueError):
                continue  # one upstream's invalid row must not hide the others' rows
            if left < 0 and number > first:
                return shown, number
            shown.append(valid)
        return shown, min(first + PAGE_ROWS, len(rows))

    def _named(self, row: dict[str, Json], namespace: str) -> dict[str, Json]:
        redact = self.accounts.fleet[row["upstream"]].redact
        scrub = redact.start
        shown = clean_json(row, printable(scrub), MAX_TEXT_CHARACTERS)
        del shown["upstream"]
        if "title" in row:  # clients show it instead of the name, so it names the upstream too
            shown["title"] = f"{namespace}: {clean_text(row['title'], one_line(scrub), MAX_TITLE_CHARACTERS)}"
        for key in ("uri", "uriTemplate"):
            if key in shown:
                shown[key] = f"{PREFIX}{namespace}/{redact(row[key])}"
        # Clients send a prompt's name and argument names back, so those stay unchanged, but for secrets.
        if "arguments" in row:
            shown["name"] = redact(row["name"])
            for argument, own in zip(shown["arguments"], row["arguments"], strict=True):
                argument["name"] = redact(own["name"])
        return {**shown, "name": f"{namespace}.{shown['name']}"}

    def _manifest(self, context: Context) -> Manifest:
        return self.views[caller_of(context).profile].manifest

    def _key(self, context: Context, namespace: str, kind: str, about: Json = None) -> str:
        for key, known in self._manifest(context).namespaces.items():
            if known == namespace:
                return key
        message = f"there is no such {kind}: its name does not begin with that of an upstream"
        raise MCPError(types.INVALID_PARAMS, message, about)

    @asynccontextmanager
    async def _resources(
        self, context: Context, function: Method, about: Json = None
    ) -> AsyncIterator[tuple[Resources, Entry]]:
        """A context for one request. Its errors become an MCPError with `about` as data."""
        caller = caller_of(context)
        authority = self.views[caller.profile].authority
        audit = self.audit.run(f"read_{secrets.token_hex(8)}", caller, authority.manifest.profile)
        audit.reading(function)
        entry = Entry(1, function, time.monotonic())
        try:
            with recorded(entry, audit):
                authorization = Authorization(authority, set(), audit)
                own = CallerUpstreams(self.accounts, authority.manifest, caller)
                yield Resources(authorization, own), entry
        except ResourceError as error:
            message = error.call_error.message
            end = "" if message.endswith((".", "!", "?")) else "."
            text = f"{error.call_error.code}: {message}{end} {error.call_error.hint}".strip()
            cause = error.__cause__
            is_rejected = isinstance(cause, UpstreamRefusedError) and cause.rpc_code in _NOT_FOUND
            is_clients_fault = error.state == "refused" or is_rejected
            code = types.INVALID_PARAMS if is_clients_fault else types.INTERNAL_ERROR
            raise MCPError(code, text, about) from error

    async def _answer(self, context: Context, key: str, kind: type[Answer], raw: Json) -> Answer:
        most = self._manifest(context).portal.capabilities.limits.outcome_bytes
        # In a thread: searching megabytes for secrets takes time, and other clients must not wait.
        return await anyio.to_thread.run_sync(self._clean, key, kind, raw, most)

    def _clean(self, key: str, kind: type[Answer], raw: Json, most: int) -> Answer:
        try:
            text = compact(raw)
            if len(text) <= most and len(text.encode("utf-8", "replace")) <= most:
                clean = clean_json(raw, self.accounts.fleet[key].redact.start, most)
                return kind.model_validate(clean, by_name=False)
        except (ValidationError, ValueError, RecursionError) as error:
            message = f"the answer of upstream {key!r} is not valid MCP"
            raise MCPError(types.INTERNAL_ERROR, message) from error
        raise MCPError(
            types.INTERNAL_ERROR, f"the answer of upstream {key!r} exceeds limits.outcome_bytes = {most:,}"
        )

"""Resources and prompts of upstreams as the portal offers them itself, where the manifest says so.

A resource is `portal://files/` and its URI at the upstream, a prompt `files.` and its name there. The rules for scripts
decide about them, and each request is written to the audit log as a call is.

Source: MCP 2026-07-28, server/resources and server/prompts.
"""

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Prompt,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from pydantic import BaseModel, ValidationError

from manifests.json_value import Json
from portal.audit.audit import Audit
from portal.authority import Authorization
from portal.budget.tokens import compact
from portal.caller import caller_of
from portal.ledger import Entry
from portal.passthrough.clean_json import clean_json, clean_text, one_line, printable
from portal.passthrough.offer_changes import OfferChanges
from portal.passthrough.readings import RESOURCE_KINDS, ReadingError, Readings
from portal.view import View
from upstreams.fleet import Fleet

PREFIX: Final = "portal://"
NOTICES: Final = "dev.mcp-code-portal/notices"
"""The member of a list's `_meta` that says which upstreams it lacks, and why."""

PAGE_ROWS: Final = 500
PAGE_CHARACTERS: Final = 500_000
"""Of a page, as JSON: clients over the older HTTP take a message of 1 MiB. One row is always told."""

MAX_KEPT_LISTS: Final = 20
KEPT_SECONDS: Final = 10.0
"""How long a list goes on where its first page was taken from, for clients that walk through its pages."""

MAX_TEXT_CHARACTERS: Final = 8_200
"""Of one text in a list: a URI may be that long."""

MAX_TITLE_CHARACTERS: Final = 200

Context = ServerRequestContext[Any, Any]
Row = TypeVar("Row", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)


class OwnOffer:
    """Answers the requests of the portal's clients."""

    def __init__(
        self, views: Mapping[str | None, View], fleet: Fleet, audit: Audit, changes: OfferChanges
    ) -> None:
        self._views = views
        self._fleet = fleet
        self._audit = audit
        self._changes = changes
        self._kept: dict[tuple[str | None, str], tuple[float, list[dict[str, Json]]]] = {}

    async def list_resources(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        rows, cursor, meta = await self._page(context, params, "resources", "resources", Resource)
        return ListResourcesResult(resources=rows, next_cursor=cursor, _meta=meta)

    async def list_templates(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        rows, cursor, meta = await self._page(context, params, "resources", "templates", ResourceTemplate)
        return ListResourceTemplatesResult(resource_templates=rows, next_cursor=cursor, _meta=meta)

    async def list_prompts(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        rows, cursor, meta = await self._page(context, params, "prompts", "prompts", Prompt)
        return ListPromptsResult(prompts=rows, next_cursor=cursor, _meta=meta)

    async def read_resource(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        namespace, _, uri = params.uri.removeprefix(PREFIX).partition("/")
        key = self._key(context, namespace if uri and params.uri.startswith(PREFIX) else "", "resource")
        async with self._readings(context, "resources/read") as (readings, entry):
            contents = await readings.read_resource(key, uri, entry)
        for each in contents:
            theirs = each.get("uri")
            each["uri"] = f"{PREFIX}{namespace}/{theirs if isinstance(theirs, str) else uri}"
        return await self._bounded(context, key, ReadResourceResult, {"contents": contents})

    async def get_prompt(self, context: Context, params: GetPromptRequestParams) -> GetPromptResult:
        namespace, _, name = params.name.partition(".")
        key = self._key(context, namespace if name else "", "prompt")
        arguments: dict[str, Json] = dict(params.arguments or {})
        async with self._readings(context, "prompts/get") as (readings, entry):
            filled = await readings.prompt(key, name, arguments, entry)
        return await self._bounded(context, key, GetPromptResult, filled)

    async def _page(
        self,
        context: Context,
        params: PaginatedRequestParams | None,
        listed: str,
        kind: str,
        model: type[Row],
    ) -> tuple[list[Row], str | None, dict[str, Json] | None]:
        """Its rows; the cursor of the next one, which is the number of rows before it; and what the list lacks."""
        self._changes.attend(context)
        cursor = (params.cursor if params else None) or "0"
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise MCPError(INVALID_PARAMS, "there is no such cursor")
        first, profile = int(cursor), caller_of(context).profile
        rows, meta = self._kept_rows(profile, kind) if first else None, None
        if rows is None:
            async with self._readings(context, f"{listed}/list") as (readings, entry):
                if listed == "resources":
                    found = await readings.resources(None, entry, {kind: RESOURCE_KINDS[kind]})
                else:
                    found = await readings.prompts(None, entry)
            rows = found[kind]
            meta = {NOTICES: found["notices"]} if found["notices"] else None
        # In a thread: hostile rows take time, and other clients wait for nobody.
        shown, end = await anyio.to_thread.run_sync(self._shown, profile, rows, first, model)
        if end == len(rows):
            return shown, None, meta
        self._keep(profile, kind, rows)
        return shown, str(end), meta

    def _kept_rows(self, profile: str | None, kind: str) -> list[dict[str, Json]] | None:
        until, rows = self._kept.get((profile, kind), (0.0, []))
        return rows if anyio.current_time() < until else None

    def _keep(self, profile: str | None, kind: str, rows: list[dict[str, Json]]) -> None:
        """For the pages after this one, which ask nobody again."""
        now = anyio.current_time()
        self._kept = {key: kept for key, kept in self._kept.items() if now < kept[0]}
        self._kept.pop((profile, kind), None)
        if len(self._kept) < MAX_KEPT_LISTS:
            self._kept[profile, kind] = now + KEPT_SECONDS, rows

    def _shown(
        self, profile: str | None, rows: list[dict[str, Json]], first: int, model: type[Row]
    ) -> tuple[list[Row], int]:
        """The rows of one page that the SDK can send, and how many are before the next page.

        What one upstream lists must not cost the others theirs.
        """
        namespaces = self._views[profile].manifest.namespaces
        shown: list[Row] = []
        room = PAGE_CHARACTERS
        for number, row in enumerate(rows[first : first + PAGE_ROWS], first):
            try:
                told = model.model_validate(self._named(row, namespaces[row["upstream"]]), by_name=False)
                room -= len(told.model_dump_json(by_alias=True, exclude_none=True))
            except (ValidationError, ValueError):
                continue
            if room < 0 and number > first:
                return shown, number
            shown.append(told)
        return shown, min(first + PAGE_ROWS, len(rows))

    def _named(self, row: dict[str, Json], namespace: str) -> dict[str, Json]:
        scrub = self._fleet[row["upstream"]].scrubbed
        shown = clean_json(row, printable(scrub), MAX_TEXT_CHARACTERS)
        del shown["upstream"]
        if "title" in row:  # clients show it instead of the name, so it says as well whose it is
            shown["title"] = f"{namespace}: {clean_text(row['title'], one_line(scrub), MAX_TITLE_CHARACTERS)}"
        for key in ("uri", "uriTemplate"):
            if key in shown:
                shown[key] = f"{PREFIX}{namespace}/{row[key]}"
        if (
            "arguments" in row
        ):  # a prompt, which is asked for by its name, as its arguments are filled in by theirs
            shown["name"] = row["name"]
            for argument, own in zip(shown["arguments"], row["arguments"], strict=True):
                argument["name"] = own["name"]
        return {**shown, "name": f"{namespace}.{shown['name']}"}

    def _key(self, context: Context, namespace: str, kind: str) -> str:
        for key, known in self._views[caller_of(context).profile].manifest.namespaces.items():
            if known == namespace:
                return key
        raise MCPError(INVALID_PARAMS, f"there is no such {kind}: its name begins with that of no upstream")

    @asynccontextmanager
    async def _readings(self, context: Context, function: str) -> AsyncIterator[tuple[Readings, Entry]]:
        caller = caller_of(context)
        view = self._views[caller.profile]
        audit = self._audit.run(f"read_{secrets.token_hex(8)}", caller, view.manifest.profile)
        audit.reading(function)
        entry = Entry(1, function, time.monotonic())
        try:
            authorization = Authorization(view.authority, set(), audit)
            yield Readings(view.manifest, authorization, self._fleet, cannot_name=True), entry
        except ReadingError as error:
            entry.end(error.state, error.told)
            if error.state == "refused":
                audit.refused(entry.seq, entry.request or function, error.told)
            told = f"{error.told.code}: {_sentence(error.told.message)} {error.told.hint}".strip()
            raise MCPError(INVALID_PARAMS if error.state == "refused" else INTERNAL_ERROR, told) from error
        else:
            entry.end("done")
        finally:
            if entry.state != "refused":
                audit.outcome(entry)

    async def _bounded(self, context: Context, key: str, kind: type[Answer], raw: Json) -> Answer:
        most = self._views[caller_of(context).profile].manifest.portal.capabilities.limits.outcome_bytes
        # In a thread: looking through megabytes for secrets takes time, and other clients wait for nobody.
        return await anyio.to_thread.run_sync(self._clean, key, kind, raw, most)

    def _clean(self, key: str, kind: type[Answer], raw: Json, most: int) -> Answer:
        try:
            text = compact(raw)
            if len(text) <= most and len(text.encode("utf-8", "replace")) <= most:
                clean = clean_json(raw, self._fleet[key].scrubbed, most)
                return kind.model_validate(clean, by_name=False)
        except (ValidationError, ValueError, RecursionError) as error:
            raise MCPError(INTERNAL_ERROR, f"upstream {key!r} answered what MCP does not know") from error
        raise MCPError(INTERNAL_ERROR, f"upstream {key!r} answered more than limits.outcome_bytes = {most:,}")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."

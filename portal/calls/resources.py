"""Resources and prompts of upstreams, for one run or one client: `portal.resources`, `read_resource`, `prompts`,
`get_prompt`.

Rule 1: each request to an upstream has its own permit, and its answer is treated like the result of a call. The
manifest's rules match a request by its method, like a tool: `files.resources/read`, `prompts/*`.
"""

import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import anyio

from manifests.grants import Hints
from manifests.json_value import Json
from manifests.names import namespace_of
from portal.calls.caller_upstreams import CallerUpstreams
from portal.calls.run import GET_PROMPT, READ_RESOURCE, RESOURCES
from portal.catalog.authority import ApprovalNeeded, Authorization, CallRequest, Permit, WithheldError
from portal.catalog.methods import HINTS, Method
from portal.records.audit.audit import RunAudit
from portal.records.ledger import CallState, Entry
from sandbox_runtime.call_port import CallError
from upstreams.errors import UpstreamAnswerError, UpstreamError
from upstreams.upstream import MAX_IDENTIFIER_CHARACTERS, Listed, Upstream

Kinds: TypeAlias = Mapping[str, Listed]
"""The upstreams' names of listings, by the portal's."""

OnSent: TypeAlias = Callable[[bool], None]
"""Called before a request is sent. The argument says whether an earlier attempt may have arrived."""

LIST_SECONDS: Final = 10.0
"""Time for each kind of one upstream in a list of all. Bounds upstreams that hang or never stop listing."""


class ResourceError(Exception):
    """The request was refused or failed. `state` is its state in the ledger."""

    def __init__(self, call_error: CallError, state: CallState = "refused") -> None:
        super().__init__(call_error.message)
        self.call_error = call_error
        self.state = state


@contextmanager
def recorded(entry: Entry, audit: RunAudit) -> Iterator[None]:
    """End the ledger entry of a request and record its outcome in the audit log."""
    try:
        yield
    except ResourceError as error:
        entry.end(error.state, error.call_error)
        if error.state == "refused":
            audit.refused(entry.seq, entry.request or entry.function, error.call_error)
        raise
    else:
        entry.end("done")
    finally:
        if entry.state != "refused":
            audit.outcome(entry)


@dataclass(frozen=True, eq=False)
class Resources:
    """Reads resources and prompts for one run or one client, as the manifest allows."""

    authorization: Authorization
    own: CallerUpstreams
    """The upstreams, with the caller's logins."""

    async def answer(self, function: str, arguments: Mapping[str, Json], entry: Entry) -> Json:
        """Answer a script's call. Raises ResourceError: it is refused, or the upstream gave no answer."""
        if function == READ_RESOURCE:
            return await self.read(self._upstream(arguments), _identifier(arguments, "uri"), entry)
        if function == GET_PROMPT:
            values = _values(arguments.get("arguments"))
            return await self.prompt(self._upstream(arguments), _identifier(arguments, "name"), values, entry)
        upstream = None if arguments.get("upstream") is None else self._upstream(arguments)
        if function == RESOURCES:
            kinds: Kinds = {"resources": "resources", "templates": "resourceTemplates"}
            return await self.listed("resources/list", kinds, upstream, entry)
        return await self.listed("prompts/list", {"prompts": "prompts"}, upstream, entry)

    async def listed(
        self, method: Method, kinds: Kinds, upstream: str | None, entry: Entry
    ) -> dict[str, Json]:
        """`{kind: [row], ..., notices}` of one upstream, or of all that may be read, in the manifest's order."""
        if upstream is None:
            return await self._all_listed(method, kinds, entry)
        sent = self._permit(upstream, method, {}, entry)
        rows = {name: await self._rows(upstream, listed, sent, entry) for name, listed in kinds.items()}
        return {**rows, "notices": []}

    async def read(self, upstream: str, uri: str, entry: Entry) -> list[Json]:
        """The contents of a resource: `[{uri, mimeType?, text | blob}]`."""
        raw = await self._ask(upstream, "resources/read", {"uri": uri}, entry)
        return _objects(upstream, raw.get("contents"), "the resource's contents")

    async def prompt(
        self, upstream: str, name: str, arguments: dict[str, Json], entry: Entry
    ) -> dict[str, Json]:
        """`{description, messages: [{role, content}]}`."""
        raw = await self._ask(upstream, "prompts/get", {"name": name, "arguments": arguments}, entry)
        messages = _objects(upstream, raw.get("messages"), "the prompt's messages")
        description = raw.get("description")
        return {"description": description if isinstance(description, str) else "", "messages": messages}

    async def _all_listed(self, method: Method, kinds: Kinds, entry: Entry) -> dict[str, Json]:
        """List all upstreams. Upstreams that the rules hide are skipped; those that are not ready get a notice.

        All requests are authorized before the first is sent. No answer can flow from one upstream to another, so the
        flow rules stop none of them.
        """
        await self.own.fleet.settled(self.own.manifest.portal.server.start_seconds)
        permitted: dict[str, OnSent] = {}
        notices: list[Json] = []
        for upstream in self.own.fleet:
            request = self._request(upstream.name, method, {}, entry)
            if not request.tool.granted:
                continue
            # Listing all must not start a server, or wait for one that is down.
            if upstream.state.status not in ("ready", "failing"):
                notices.append(f"upstream {upstream.name!r} was skipped: it is {upstream.state.status}")
                continue
            permit = self._authorized(request)
            if isinstance(permit, CallError):
                self.authorization.audit.refused(request.seq, request.function, permit)
                notices.append(permit.message)
            else:
                permitted[upstream.name] = partial(self._confirm, upstream.name, method, permit, entry)
        parts: dict[tuple[str, str], list[Json]] = {}

        async def ask(key: str, sent: OnSent) -> None:
            try:
                for name, listed in kinds.items():
                    parts[key, name] = await self._rows(key, listed, sent, entry, LIST_SECONDS)
            except ResourceError as error:
                notices.append(error.call_error.message)

        async with anyio.create_task_group() as tasks:
            for key, sent in permitted.items():
                tasks.start_soon(ask, key, sent)
        rows = {name: [row for key in permitted for row in parts.get((key, name), ())] for name in kinds}
        return {**rows, "notices": notices}

    async def _rows(
        self, key: str, listed: Listed, sent: OnSent, entry: Entry, most_seconds: float = math.inf
    ) -> list[Json]:
        seconds = min(self.own.fleet[key].spec.call_seconds, most_seconds)
        # Listing all must not ask anyone to sign in.
        async with self._reached(key, entry, may_ask=most_seconds == math.inf) as upstream:
            rows = await upstream.offered(listed, seconds=seconds, on_sent=sent)
        return [{**row, "upstream": key} for row in rows]

    async def _ask(
        self, key: str, method: Method, arguments: dict[str, Json], entry: Entry
    ) -> dict[str, Json]:
        sent = self._permit(key, method, arguments, entry)
        seconds = self.own.fleet[key].spec.call_seconds
        async with self._reached(key, entry) as upstream:
            return await upstream.ask(method, arguments, seconds=seconds, on_sent=sent)

    @asynccontextmanager
    async def _reached(self, key: str, entry: Entry, *, may_ask: bool = True) -> AsyncIterator[Upstream]:
        """The caller's upstream for one request. Raises ResourceError: it failed, or the caller has to sign in."""
        try:
            await self.own.ready(key, may_ask=may_ask)
            async with self.own.of(key) as upstream:
                yield upstream
        except UpstreamError as error:
            entry.sources |= self.authorization.carry([key])
            raise _failure(error) from error

    def _permit(self, key: str, method: Method, arguments: dict[str, Json], entry: Entry) -> OnSent:
        request = self._request(key, method, arguments, entry)
        entry.request = request.function
        permit = self._authorized(request)
        if isinstance(permit, CallError):
            raise ResourceError(permit)
        return partial(self._confirm, key, method, permit, entry)

    def _confirm(self, key: str, method: Method, permit: Permit, entry: Entry, was_seen: bool) -> None:
        request = self._request(key, method, permit.arguments, entry)
        self.authorization.confirm(request, permit, entry, was_seen=was_seen)

    def _authorized(self, request: CallRequest) -> Permit | CallError:
        """Authorize a request. No person is asked: a request whose method asks for approval is refused."""
        permit = self.authorization.authorize(request)
        return permit.error if isinstance(permit, ApprovalNeeded) else permit

    def _request(self, key: str, method: Method, arguments: dict[str, Json], entry: Entry) -> CallRequest:
        tool = self.authorization.authority.policy.about(key, method, method, HINTS)
        name = f"{namespace_of(key)}.{method}"
        return CallRequest(name, key, tool, lambda: arguments, entry.seq, Hints(readonly=True))

    def _upstream(self, arguments: Mapping[str, Json]) -> str:
        named, namespaces = arguments.get("upstream"), self.own.manifest.namespaces
        keys = [key for key, namespace in namespaces.items() if named is None or named in (key, namespace)]
        if len(keys) == 1:
            return keys[0]
        hint = f"Upstreams: {', '.join(namespaces)}." if namespaces else "The portal has no upstream."
        unknown = f"there is no upstream {str(named)[:100]!r}"
        raise _invalid("`upstream` is required" if named is None else unknown, hint)


def _identifier(arguments: Mapping[str, Json], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_IDENTIFIER_CHARACTERS:
        raise _invalid(f"`{name}` must be a string of at most {MAX_IDENTIFIER_CHARACTERS:,} characters")
    return value


def _values(arguments: Json) -> dict[str, Json]:
    values = {} if arguments is None else arguments
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise _invalid("the arguments of a prompt must be a dict of strings")
    return values


def _objects(upstream: str, value: Json, what: str) -> list[Json]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _failure(UpstreamAnswerError(f"upstream {upstream!r}: answered without {what}"))
    return value


def _invalid(message: str, hint: str = "") -> ResourceError:
    return ResourceError(CallError("invalid_arguments", message, hint))


def _failure(error: UpstreamError) -> ResourceError:
    if isinstance(error, WithheldError):
        return ResourceError(error.call_error)
    return ResourceError(CallError(error.code, str(error), error.hint), error.outcome)

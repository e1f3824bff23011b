"""Resources and prompts of upstreams, for one run or one client: `portal.resources`, `read_resource`, `prompts`,
`get_prompt`.

Rule 1: each request to an upstream has a permit of its own, and what it answers counts as what a call answers. The
manifest's rules mean it by its method's name, as they mean a tool: `files.resources/read`, `prompts/*`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

import anyio

from manifests.decision import ListedTool
from manifests.grants import Hints
from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.audit.audit import RunAudit
from portal.authority import Authorization, CallRequest, WithheldError
from portal.ledger import CallState, Entry
from sandbox_runtime.calls import CallError
from upstreams.errors import UpstreamAnswerError, UpstreamError
from upstreams.fleet import Fleet
from upstreams.tools import MAX_IDENTIFIER_CHARACTERS, Listed

RESOURCES: Final = "portal.resources"
READ_RESOURCE: Final = "portal.read_resource"
PROMPTS: Final = "portal.prompts"
GET_PROMPT: Final = "portal.get_prompt"
FUNCTIONS: Final = frozenset({RESOURCES, READ_RESOURCE, PROMPTS, GET_PROMPT})

Method: TypeAlias = Literal["resources/list", "resources/read", "prompts/list", "prompts/get"]
METHODS: Final[tuple[Method, ...]] = ("resources/list", "resources/read", "prompts/list", "prompts/get")

HINTS: Final = Hints(readonly=True, is_silent=False)
"""They only read."""

LISTED: Final = [ListedTool(method, method, HINTS, None) for method in METHODS]
"""They take other arguments than tools do: no condition on arguments is a slip for their sake."""

Kinds: TypeAlias = Mapping[str, Listed]
"""What upstreams list, by how the portal calls it."""

RESOURCE_KINDS: Final[Kinds] = {"resources": "resources", "templates": "resourceTemplates"}
PROMPT_KINDS: Final[Kinds] = {"prompts": "prompts"}

OnSent: TypeAlias = Callable[[bool], None]
"""Hears that a request is sent, and whether it may have arrived before."""

LIST_SECONDS: Final = 10.0
"""One upstream that hangs, or lists without end, keeps a list of all no longer than that; one of two kinds, twice."""


class ResourceError(Exception):
    """There is no answer; `state` is what the ledger may say about it."""

    def __init__(self, call_error: CallError, state: CallState = "refused") -> None:
        super().__init__(call_error.message)
        self.call_error = call_error
        self.state = state


@contextmanager
def recorded(entry: Entry, audit: RunAudit) -> Iterator[None]:
    """Around a request: its ledger entry is ended, and what became of it is written down."""
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
    """What one run, or one client, may read of the upstreams of a manifest."""

    manifest: Manifest
    authorization: Authorization
    fleet: Fleet

    async def answer(self, function: str, arguments: Mapping[str, Json], entry: Entry) -> Json:
        """What the function answers a script. Raises ResourceError: it is refused, or the upstream gave no answer."""
        if function == READ_RESOURCE:
            return await self.read(self._upstream(arguments), _identifier(arguments, "uri"), entry)
        if function == GET_PROMPT:
            values = _values(arguments.get("arguments"))
            return await self.prompt(self._upstream(arguments), _identifier(arguments, "name"), values, entry)
        upstream = None if arguments.get("upstream") is None else self._upstream(arguments)
        if function == RESOURCES:
            return await self.listed("resources/list", RESOURCE_KINDS, upstream, entry)
        return await self.listed("prompts/list", PROMPT_KINDS, upstream, entry)

    async def listed(
        self, method: Method, kinds: Kinds, upstream: str | None, entry: Entry
    ) -> dict[str, Json]:
        """`{kind: [row], ..., notices}` of one upstream, or of all that may be asked, in the manifest's order."""
        if upstream is None:
            return await self._all_listed(method, kinds, entry)
        sent = self._permit(upstream, method, {}, entry)
        rows = {name: await self._rows(upstream, listed, sent) for name, listed in kinds.items()}
        return {**rows, "notices": []}

    async def read(self, upstream: str, uri: str, entry: Entry) -> list[Json]:
        """Its contents: `[{uri, mimeType?, text | blob}]`."""
        raw = await self._asked(upstream, "resources/read", {"uri": uri}, entry)
        return _objects(upstream, raw.get("contents"), "the resource's contents")

    async def prompt(
        self, upstream: str, name: str, arguments: dict[str, Json], entry: Entry
    ) -> dict[str, Json]:
        """`{description, messages: [{role, content}]}`."""
        raw = await self._asked(upstream, "prompts/get", {"name": name, "arguments": arguments}, entry)
        messages = _objects(upstream, raw.get("messages"), "the prompt's messages")
        description = raw.get("description")
        return {"description": description if isinstance(description, str) else "", "messages": messages}

    async def _all_listed(self, method: Method, kinds: Kinds, entry: Entry) -> dict[str, Json]:
        """Of those that the rules hide nothing is said; of one that may be asked, but not now, there is a notice.

        All are permitted before any is asked: nothing that one answers goes to another, so no flow between them is in
        the way.
        """
        await self.fleet.settled(self.manifest.portal.server.start_seconds)
        permitted: dict[str, OnSent] = {}
        notices: list[Json] = []
        for upstream in self.fleet:
            again = partial(self._request, upstream.name, method, {}, entry)
            request = again()
            if not request.tool.granted:
                continue
            # To list all is no reason to start a server, or to wait for one that is down.
            if upstream.state.status not in ("ready", "failing"):
                notices.append(f"upstream {upstream.name!r} is {upstream.state.status} and was not asked")
                continue
            permit = self.authorization.authorize(request)
            if isinstance(permit, CallError):
                self.authorization.note_refusal(request, permit)
                notices.append(permit.message)
            else:
                permitted[upstream.name] = self.authorization.sending(again, permit, entry)
        parts: dict[tuple[str, str], list[Json]] = {}

        async def ask(key: str, sent: OnSent) -> None:
            try:
                for name, listed in kinds.items():
                    parts[key, name] = await self._rows(key, listed, sent, most_seconds=LIST_SECONDS)
            except ResourceError as error:
                notices.append(error.call_error.message)

        async with anyio.create_task_group() as tasks:
            for key, sent in permitted.items():
                tasks.start_soon(ask, key, sent)
        rows = {name: [row for key in permitted for row in parts.get((key, name), ())] for name in kinds}
        return {**rows, "notices": notices}

    async def _rows(
        self, key: str, listed: Listed, sent: OnSent, *, most_seconds: float = math.inf
    ) -> list[Json]:
        seconds = min(self.manifest.portal.upstreams[key].call_seconds, most_seconds)
        try:
            rows = await self.fleet[key].offered(listed, seconds=seconds, on_sent=sent)
        except UpstreamError as error:
            raise _failure(error) from error
        return [{**row, "upstream": key} for row in rows]

    async def _asked(
        self, key: str, method: Method, arguments: dict[str, Json], entry: Entry
    ) -> dict[str, Json]:
        sent = self._permit(key, method, arguments, entry)
        seconds = self.manifest.portal.upstreams[key].call_seconds
        try:
            return await self.fleet[key].ask(method, arguments, seconds=seconds, on_sent=sent)
        except UpstreamError as error:
            raise _failure(error) from error

    def _permit(self, key: str, method: Method, arguments: dict[str, Json], entry: Entry) -> OnSent:
        request = self._request(key, method, arguments, entry)
        entry.request = request.function
        permit = self.authorization.authorize(request)
        if isinstance(permit, CallError):
            raise ResourceError(permit)
        return self.authorization.sending(lambda: request, permit, entry)

    def _request(self, key: str, method: Method, arguments: dict[str, Json], entry: Entry) -> CallRequest:
        tool = self.authorization.about(key, method, HINTS)
        name = f"{self.manifest.namespaces[key]}.{method}"
        return CallRequest(name, key, tool, lambda: arguments, entry.seq, is_readonly=True)

    def _upstream(self, arguments: Mapping[str, Json]) -> str:
        named, namespaces = arguments.get("upstream"), self.manifest.namespaces
        keys = [key for key, namespace in namespaces.items() if named is None or named in (key, namespace)]
        if len(keys) == 1:
            return keys[0]
        hint = f"There are {', '.join(namespaces)}." if namespaces else "The portal has no upstream."
        unknown = f"there is no upstream {str(named)[:100]!r}"
        raise _invalid("say which upstream it is of" if named is None else unknown, hint)


def _identifier(arguments: Mapping[str, Json], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_IDENTIFIER_CHARACTERS:
        raise _invalid(f"`{name}` is a text of at most {MAX_IDENTIFIER_CHARACTERS:,} characters")
    return value


def _values(arguments: Json) -> dict[str, Json]:
    values = {} if arguments is None else arguments
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise _invalid("the arguments of a prompt are texts by name")
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

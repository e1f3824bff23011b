"""`portal.resources`, `read_resource`, `prompts` and `get_prompt`: what upstreams offer besides tools, for one run.

Rule 1: each request to an upstream has a permit of its own, and what it answers counts as what a call answers.
"""

import math
from collections.abc import Mapping
from itertools import chain
from typing import Final

import anyio

from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.authority import Authorization, CallRequest, Permit
from portal.ledger import CallState, Entry
from portal.passthrough.methods import Method
from sandbox_runtime.calls import CallError
from upstreams.errors import UpstreamAnswerError, UpstreamError, UpstreamWithheldError
from upstreams.fleet import Fleet
from upstreams.offerings import MAX_IDENTIFIER_CHARACTERS, Listed
from upstreams.upstream import Upstream

RESOURCES: Final = "portal.resources"
READ_RESOURCE: Final = "portal.read_resource"
PROMPTS: Final = "portal.prompts"
GET_PROMPT: Final = "portal.get_prompt"
FUNCTIONS: Final = frozenset({RESOURCES, READ_RESOURCE, PROMPTS, GET_PROMPT})

RESOURCE_KINDS: Final[Mapping[str, Listed]] = {"resources": "resources", "templates": "resourceTemplates"}
"""What upstreams list under which names, by how the portal calls it."""

AT_ONCE: Final = 8
"""Upstreams that are asked side by side when all are."""

LIST_SECONDS: Final = 10.0
"""One upstream that hangs, or lists without end, keeps a list of all no longer than that; one of two kinds, twice."""


class ReadingError(Exception):
    """There is no answer; `state` is what the ledger may say about it."""

    def __init__(self, told: CallError, state: CallState = "refused") -> None:
        super().__init__(told.message)
        self.told = told
        self.state = state


class Readings:
    """What one run, or one client, may read of the upstreams of a manifest.

    A script lists one upstream by name. Who `cannot_name` one, as a client, has those that are idle in a list of all:
    as they were listed last or, if they never were, started to be asked.
    """

    def __init__(
        self,
        manifest: Manifest,
        authorization: Authorization,
        fleet: Fleet,
        *,
        cannot_name: bool = False,
    ) -> None:
        self._manifest = manifest
        self._authorization = authorization
        self._fleet = fleet
        self._cannot_name = cannot_name

    async def answer(self, function: str, arguments: Mapping[str, Json], entry: Entry) -> Json:
        """What the function answers a script.

        Raises:
            ReadingError: It is refused, or the upstream gave no answer.
        """
        if function == READ_RESOURCE:
            upstream = self._upstream(arguments)
            return await self.read_resource(upstream, _identifier(arguments, "uri"), entry)
        if function == GET_PROMPT:
            upstream = self._upstream(arguments)
            values = _values(arguments.get("arguments"))
            return await self.prompt(upstream, _identifier(arguments, "name"), values, entry)
        chosen = None if arguments.get("upstream") is None else self._upstream(arguments)
        return await (self.resources if function == RESOURCES else self.prompts)(chosen, entry)

    async def resources(
        self, upstream: str | None, entry: Entry, kinds: Mapping[str, Listed] = RESOURCE_KINDS
    ) -> dict[str, Json]:
        """`{resources, templates, notices}`, or what of it is in `kinds`, of one upstream or all that may be asked."""
        return await self._listed("resources/list", kinds, upstream, entry)

    async def prompts(self, upstream: str | None, entry: Entry) -> dict[str, Json]:
        """`{prompts, notices}` of one upstream, or of all that may be asked."""
        return await self._listed("prompts/list", {"prompts": "prompts"}, upstream, entry)

    async def read_resource(self, upstream: str, uri: str, entry: Entry) -> list[Json]:
        """Its contents: `[{uri, mimeType?, text | blob}]`."""
        contents = (await self._asked(upstream, "resources/read", {"uri": uri}, entry)).get("contents")
        if not isinstance(contents, list) or not all(isinstance(each, dict) for each in contents):
            error = UpstreamAnswerError(f"upstream {upstream!r}: answered without the resource's contents")
            raise _failure(error)
        return contents

    async def prompt(
        self, upstream: str, name: str, arguments: dict[str, Json], entry: Entry
    ) -> dict[str, Json]:
        """`{description, messages: [{role, content}]}`."""
        asked: dict[str, Json] = {"name": name, "arguments": arguments}
        raw = await self._asked(upstream, "prompts/get", asked, entry)
        messages, description = raw.get("messages"), raw.get("description")
        if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
            error = UpstreamAnswerError(f"upstream {upstream!r}: answered without the prompt's messages")
            raise _failure(error)
        return {"description": description if isinstance(description, str) else "", "messages": messages}

    async def _listed(
        self, method: Method, kinds: Mapping[str, Listed], upstream: str | None, entry: Entry
    ) -> dict[str, Json]:
        if upstream is None:
            return await self._all_listed(method, kinds, entry)
        entry.request = self._request(upstream, method, {}, entry).function
        sent = self._permit(upstream, method, {}, entry)
        rows = {name: await self._rows(upstream, listed, sent) for name, listed in kinds.items()}
        return {**rows, "notices": []}

    async def _all_listed(self, method: Method, kinds: Mapping[str, Listed], entry: Entry) -> dict[str, Json]:
        asked, notices = await self._askable(method)

        def miss(key: str, error: ReadingError) -> None:
            notices.append(error.told.message)
            if error.state == "refused":
                self._authorization.note_refusal(self._request(key, method, {}, entry), error.told)

        # Whether each may be asked is decided before any is: nothing that one answers goes to another, so no flow
        # between them is in the way, whichever comes first.
        permitted: dict[str, _Sent] = {}
        for each in asked:
            try:
                permitted[each.name] = self._permit(each.name, method, {}, entry)
            except ReadingError as error:
                miss(each.name, error)

        limiter = anyio.CapacityLimiter(AT_ONCE)
        parts: dict[str, dict[str, list[Json]]] = {key: {} for key in permitted}

        async def ask(key: str, sent: _Sent) -> None:
            async with limiter:
                try:
                    for name, listed in kinds.items():
                        parts[key][name] = await self._rows(key, listed, sent, most_seconds=LIST_SECONDS)
                except ReadingError as error:
                    miss(key, error)

        async with anyio.create_task_group() as tasks:
            for key, sent in permitted.items():
                tasks.start_soon(ask, key, sent)
        # In the manifest's order, whoever answered first.
        rows: dict[str, Json] = {
            name: [*chain(*(part.get(name, ()) for part in parts.values()))] for name in kinds
        }
        return {**rows, "notices": notices}

    async def _askable(self, method: Method) -> tuple[list[Upstream], list[Json]]:
        """All that are there to be asked, and what to know of those that are not.

        To list them all is no reason to start a server for a script, or to wait for one that is down. Of those that
        the rules hide nothing is said; of one that may be asked, but not now, there is a notice.
        """
        await self._fleet.settled(self._manifest.portal.server.start_seconds)
        allowed = [
            u for u in self._fleet if self._authorization.of_reading(u.name, method, dict).tool.granted
        ]
        askable = ("ready", "failing", "idle") if self._cannot_name else ("ready", "failing")
        there = [each for each in allowed if each.state.status in askable]
        advice = "" if self._cannot_name else ": name it to ask it"
        return there, [
            f"upstream {each.name!r} is {each.state.status} and was not asked{advice}"
            for each in allowed
            if each not in there
        ]

    async def _rows(
        self, key: str, listed: Listed, sent: "_Sent", *, most_seconds: float = math.inf
    ) -> list[Json]:
        seconds = min(self._manifest.portal.upstreams[key].call_seconds, most_seconds)
        upstream = self._fleet[key]
        rows = upstream.offered_before(listed) if self._cannot_name else None
        try:
            if rows is None:
                rows = await upstream.offered(listed, seconds=seconds, on_sent=sent)
            else:
                sent(False)  # whoever reads it counts as if the upstream had been asked
        except UpstreamError as error:
            raise _failure(error) from error
        return [{**row, "upstream": key} for row in rows]

    async def _asked(
        self, key: str, method: Method, arguments: dict[str, Json], entry: Entry
    ) -> dict[str, Json]:
        entry.request = self._request(key, method, arguments, entry).function
        sent = self._permit(key, method, arguments, entry)
        seconds = self._manifest.portal.upstreams[key].call_seconds
        upstream = self._fleet[key]
        try:
            return await upstream.ask(method, sent.permit.arguments, seconds=seconds, on_sent=sent)
        except UpstreamError as error:
            raise _failure(error) from error

    def _permit(self, key: str, method: Method, arguments: dict[str, Json], entry: Entry) -> "_Sent":
        request = self._request(key, method, arguments, entry)
        permit = self._authorization.authorize(request)
        if isinstance(permit, CallError):
            raise ReadingError(permit)
        return _Sent(self._authorization, request, permit, entry)

    def _request(self, key: str, method: Method, arguments: dict[str, Json], entry: Entry) -> CallRequest:
        return self._authorization.of_reading(key, method, lambda: arguments, entry.seq)

    def _upstream(self, arguments: Mapping[str, Json]) -> str:
        named, namespaces = arguments.get("upstream"), self._manifest.namespaces
        keys = [key for key, namespace in namespaces.items() if named is None or named in (key, namespace)]
        if len(keys) == 1:
            return keys[0]
        hint = f"There are {', '.join(namespaces)}." if namespaces else "The portal has no upstream."
        told = (
            "say which upstream it is of" if named is None else f"there is no upstream {str(named)[:100]!r}"
        )
        raise ReadingError(CallError("invalid_arguments", told, hint))


def _identifier(arguments: Mapping[str, Json], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_IDENTIFIER_CHARACTERS:
        told = f"`{name}` is a text of at most {MAX_IDENTIFIER_CHARACTERS:,} characters"
        raise ReadingError(CallError("invalid_arguments", told))
    return value


def _values(arguments: Json) -> dict[str, Json]:
    values = {} if arguments is None else arguments
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ReadingError(CallError("invalid_arguments", "the arguments of a prompt are texts by name"))
    return values


class _Sent:
    """Hears that a permitted request is sent; one that may have arrived before counts once more."""

    def __init__(
        self, authorization: Authorization, request: CallRequest, permit: Permit, entry: Entry
    ) -> None:
        self.permit = permit
        self._authorization = authorization
        self._request = request
        self._entry = entry

    def __call__(self, was_seen: bool) -> None:
        refusal = self._authorization.confirm(self._request, self.permit, is_repeat=was_seen)
        if refusal is not None:
            raise UpstreamWithheldError(refusal.message)
        self._entry.sent()
        self.permit.sent()


def _failure(error: UpstreamError) -> ReadingError:
    return ReadingError(CallError(error.code, str(error), error.hint), error.outcome)

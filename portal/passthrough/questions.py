"""What upstreams ask of the person and of the model at the client while they work on a script's calls.

Rule 1: whoever reads a question knows which upstream asks.
Rule 2: a form that names a secret is refused, and a page is only opened by its whole, plain address.
Rule 3: names and choices in a form are the upstream's own, because it is answered with them: where they cannot be shown
as they are, the form is refused.

Source: MCP 2026-07-28, client/elicitation#security-considerations.
"""

import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CallToolRequestParams,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from manifests.constraints import is_safe_for_tokens
from manifests.json_value import Json
from manifests.portal_manifest import UpstreamSection
from portal.budget.tokens import compact
from portal.passthrough.clean_json import Scrub, clean_json, clean_text, is_larger, one_line, sendable_json
from upstreams.questions import SAMPLE, QuestionError
from upstreams.upstream import Upstream

MAX_MESSAGE_CHARACTERS: Final = 2_000
MAX_SCHEMA_CHARACTERS: Final = 16_000
MAX_URL_CHARACTERS: Final = 2_000

_SECRET: Final = re.compile(
    r"pass(?:word|wd|phrase|code)|\bpwd\b|\bsecrets?\b|credential|(?:api|access|private|secret)[\s_-]?key|token(?!s|iz)"
    r"|\bpin\b|\bcv[cv]\b|\botp\b|\bssn\b|card[\s_-]?number|(?:seed|recovery)[\s_-]phrase",
    re.IGNORECASE,
)

# Browsers read more than this as a host, and not all of it as `urlsplit` does.
_PLAIN_HOST: Final = re.compile(r"(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?", re.IGNORECASE)


def elicitation(
    upstream: str, params: dict[str, Json], scrub: Scrub, client: ClientCapabilities | None
) -> ElicitRequest:
    """The request as the client gets it. Raises QuestionError: the client cannot ask that, or nobody should."""
    can = client.elicitation if client else None
    if can is None:
        raise QuestionError("elicitation_unsupported", "the client cannot ask the person at it anything")
    scrub, message = one_line(scrub), params.get("message")
    message = message if isinstance(message, str) else ""
    told = clean_text(message, scrub, MAX_MESSAGE_CHARACTERS)
    if params.get("mode") == "url":
        if can.url is None:
            raise QuestionError(
                "elicitation_unsupported", "the client cannot open pages for what an upstream asks"
            )
        host, url = _page(params.get("url"))
        # Clients of the revision before want a name for it, and upstreams of that one send theirs.
        name = params.get("elicitationId")
        name = name[:200] if isinstance(name, str) else secrets.token_hex(8)
        shown: dict[str, Json] = {"mode": "url", "url": url, "elicitationId": name}
        return _request({**shown, "message": f"{upstream} asks you to open a page of {host}: {told}"})
    if can.form is None and can.url is not None:
        raise QuestionError(
            "elicitation_unsupported", "the client cannot show a form for what an upstream asks"
        )
    schema = params.get("requestedSchema")
    form = _form(schema, scrub)
    words = unicodedata.normalize("NFKC", f"{told} {compact(form)}")
    if _SECRET.search(words):
        raise QuestionError(
            "elicitation_refused", "it names a secret, and MCP forbids to ask for one in a form"
        )
    return _request({"mode": "form", "message": f"{upstream} asks: {told}", "requestedSchema": form})


def _page(url: Json) -> tuple[str, str]:
    text = url if isinstance(url, str) else ""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        is_plain = (
            _PLAIN_HOST.fullmatch(parts.netloc) is not None
            and parts.port != 0  # which raises a ValueError where there is no such port
            and is_safe_for_tokens(text)
        )
    except ValueError:
        host, is_plain = "", False
    is_shown_as_it_is = text.isascii() and text.isprintable() and " " not in text and "\\" not in text
    if not (host and is_plain and is_shown_as_it_is) or len(text) > MAX_URL_CHARACTERS:
        raise QuestionError("elicitation_refused", "it asks to open what is no plain https address")
    return host, text


def _form(schema: Json, scrub: Scrub) -> Json:
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        raise QuestionError("elicitation_refused", "it asks with a form that cannot be read")
    if is_larger(schema, MAX_SCHEMA_CHARACTERS):
        raise QuestionError("elicitation_refused", "it asks with a form that is too large")
    form = clean_json(schema, scrub, MAX_MESSAGE_CHARACTERS)
    if [*_answers(form)] != [*_answers(schema)]:
        raise QuestionError("elicitation_refused", "it asks with a form that cannot be shown as it is")
    return form


def _answers(form: Json) -> Iterator[Json]:
    """What a form is answered with where nothing is typed: names, choices and defaults."""
    for name, asked in form["properties"].items():
        yield name
        for each in (asked, asked.get("items")) if isinstance(asked, dict) else ():
            if isinstance(each, dict):
                yield each.get("default")
                yield each.get("enum")
                for choices in (each.get("oneOf"), each.get("anyOf")):
                    if isinstance(choices, list):
                        yield [choice.get("const") for choice in choices if isinstance(choice, dict)]


def _request(params: dict[str, Json]) -> ElicitRequest:
    try:
        return ElicitRequest.model_validate({"method": "elicitation/create", "params": params}, by_name=False)
    except ValidationError as error:
        raise QuestionError("elicitation_refused", "it asks in a way that MCP does not know") from error


MAX_CHARACTERS: Final = 200_000
"""Of all that is to be read by the model."""

_PASSED_ON: Final = ("messages", "systemPrompt", "temperature", "stopSequences", "modelPreferences")


def sample(
    upstream: str,
    params: dict[str, Json],
    scrub: Scrub,
    client: ClientCapabilities | None,
    tokens_left: int,
) -> CreateMessageRequest:
    """The request as the client gets it: without tools and context of others, and with no more tokens than are left.

    Raises:
        QuestionError: The client has no model to ask, or it is not to be asked that.
    """
    if client is None or client.sampling is None:
        raise QuestionError("sampling_unsupported", "the client lets nobody use its model")
    if params.get("tools") or params.get("toolChoice"):
        raise QuestionError("sampling_refused", "it wants to give the model tools")
    passed_on = {key: params[key] for key in _PASSED_ON if params.get(key) is not None}
    if is_larger(passed_on, MAX_CHARACTERS):
        raise QuestionError("sampling_refused", "it asks for a sample of too long a text")
    if tokens_left <= 0:
        raise QuestionError(
            "sampling_refused", "it has used the tokens that it may sample (sampling.max_tokens)"
        )
    shown = {key: clean_json(value, scrub, MAX_CHARACTERS) for key, value in passed_on.items()}
    prompt = shown.get("systemPrompt")
    shown["systemPrompt"] = f"(Asked for by the MCP server {upstream}.)" + (f" {prompt}" if prompt else "")
    wanted = params.get("maxTokens")
    tokens = wanted if isinstance(wanted, int) and wanted > 0 else tokens_left
    shown["maxTokens"] = min(int(tokens), tokens_left)
    request = {"method": "sampling/createMessage", "params": shown}
    try:
        return CreateMessageRequest.model_validate(request, by_name=False)
    except ValidationError as error:
        raise QuestionError("sampling_refused", "it asks in a way that MCP does not know") from error


class SamplingDepths:
    """Requests for samples that are under way: who is asked, which upstream asks, and for which script."""

    def __init__(self) -> None:
        self._under_way: list[tuple[str, str, object]] = []

    @contextmanager
    def deeper(self, asked: str, upstream: str, script: object, most: int) -> Iterator[None]:
        """Around one sample that is asked for while `script` runs; those of one script are beside one another.

        Nothing says whether those of others are, or it is within them.

        Raises:
            QuestionError: `most` other scripts wait for theirs.
        """
        scripts = {each for *place, each in self._under_way if place == [asked, upstream]}
        if len(scripts - {script}) >= most:
            told = f"it samples for {most} other scripts of this client already (sampling.depth)"
            raise QuestionError("sampling_refused", told)
        self._under_way.append((asked, upstream, script))
        try:
            yield
        finally:
            self._under_way.remove((asked, upstream, script))


MAX_QUESTIONS: Final = 20
"""Of one request, of all its upstreams."""

Question: TypeAlias = ElicitRequest | CreateMessageRequest

Ask: TypeAlias = Callable[[Question], Awaitable[dict[str, Json]]]
"""Puts a question to the client, and waits for its answer.

Raises MCPError or ValidationError if the client gives none that can be read.
"""


@dataclass(eq=False)
class Questions:
    """The questions of one request. `share` is who takes turns with it, `owner` whose calls upstreams may mix up."""

    put: Ask
    capabilities: ClientCapabilities | None
    owner: str
    share: str
    depths: SamplingDepths
    asked: int = 0
    sampled_tokens: Counter[str] = field(default_factory=Counter)

    async def answer(
        self, upstream: Upstream, spec: UpstreamSection, method: str, params: dict[str, Json]
    ) -> dict[str, Json]:
        """The client's answer. Raises QuestionError: there is none, or it is not asked."""
        if self.asked >= MAX_QUESTIONS:
            told = f"upstreams have asked {MAX_QUESTIONS} times for one script"
            raise QuestionError("question_refused", told)
        self.asked += 1
        name, scrub, can = upstream.name, upstream.scrubbed, self.capabilities
        if method != SAMPLE or spec.sampling is None:
            return await self._put(elicitation(name, params, scrub, can))
        with self.depths.deeper(self.share, name, self, spec.sampling.depth):
            left = spec.sampling.max_tokens - self.sampled_tokens[name]
            asked = sample(name, params, scrub, can, left)
            self.sampled_tokens[name] += asked.params.max_tokens
            return await self._put(asked)

    async def _put(self, question: Question) -> dict[str, Json]:
        try:
            answer = await self.put(question)
            # Since 2026-07-28 a client may answer a form with a sample: nothing is refused before it is here.
            kind = ElicitResult if isinstance(question, ElicitRequest) else CreateMessageResultWithTools
            kind.model_validate(answer, by_name=False)
            return dict(sendable_json(answer))
        except (MCPError, ValueError) as error:
            raise QuestionError("question_unanswered", "the client gave no answer") from error


@dataclass(eq=False)
class CallQuestions:
    """What one upstream may ask about one call: `upstreams.questions.ServerRequestHandler`."""

    questions: Questions
    upstream: Upstream
    spec: UpstreamSection
    own_refusal: QuestionError | None = None
    unclear: QuestionError | None = None

    @property
    def owner(self) -> str:
        return self.questions.owner

    def capabilities(self) -> dict[str, Json]:
        can = self.questions.capabilities
        if can is None:
            return {}
        declared = can.model_dump(by_alias=True, mode="json", exclude_none=True, include={"elicitation"})
        # Of sampling nothing more than that there is a model: its tools and context are not passed on.
        return declared if can.sampling is None else {**declared, "sampling": {}}

    async def answer(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        return await self.questions.answer(self.upstream, self.spec, method, params)

    def not_answered(self, error: QuestionError, *, is_its_own: bool) -> None:
        if is_its_own:
            self.own_refusal = error
        else:
            self.unclear = error

    def refusal(self, failure: str) -> QuestionError | None:
        """Why it got no answer, of a call that failed so; None if it got all, or asked nothing.

        A question that may be another call's is this one's if that failed by what the upstream was told.
        """
        if self.own_refusal is None and self.unclear is not None and str(self.unclear) in failure:
            return self.unclear
        return self.own_refusal


def comes_in_rounds(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> bool:
    """Whether its client can be asked, and only with an answer: since 2026-07-28 servers send no requests.

    A request that goes on with another comes in rounds whatever its client declares: taken for a new one it would do
    everything twice.
    """
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    can = context.session.client_capabilities
    can_be_asked = can is not None and (can.elicitation is not None or can.sampling is not None)
    return can_be_asked or params.request_state is not None


def ask_by_request(context: ServerRequestContext[Any, Any]) -> Ask:
    """Asks by a request, on the stream of the client's own."""
    session = context.session

    async def ask(question: Question) -> dict[str, Json]:
        if not session.can_send_request:
            raise NoBackChannelError(question.method)
        about = ServerMessageMetadata(related_request_id=context.request_id)
        if isinstance(question, ElicitRequest):
            answer: ElicitResult | CreateMessageResult = await session.send_request(
                question, ElicitResult, metadata=about
            )
        else:
            answer = await session.send_request(question, CreateMessageResult, metadata=about)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    return ask

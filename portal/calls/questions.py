"""Forwards questions of upstreams to the person (elicitation) and the model (sampling) at the client during calls.

Rule 1: a question shows which upstream asks.
Rule 2: a form with a field for a secret, by its name, title or format, is refused, and so is one that may have fields
other than MCP's, of which a client could show more than is read here. A page to open is shown with its
full, plain URL.
Rule 3: the answer contains the upstream's own names and choices. If they cannot be shown unchanged, the form is
refused.

Source: MCP 2026-07-28, client/elicitation#security-considerations.
"""

import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
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
    ElicitationCapability,
    ElicitRequest,
    ElicitResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from manifests.constraints import is_safe_for_tokens
from manifests.json_value import Json
from manifests.portal_manifest import UpstreamSection
from portal.base.clean_json import Scrub, clean_json, clean_text, is_larger, one_line, sendable_json
from portal.identity.approvers import NOBODY, Decider
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

_BETWEEN_WORDS: Final = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Browsers accept more hosts than this, and parse some of them differently from `urlsplit`.
_PLAIN_HOST: Final = re.compile(r"(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?", re.IGNORECASE)


def elicitation(
    upstream: str, params: dict[str, Json], scrub: Scrub, client: ClientCapabilities | None
) -> ElicitRequest:
    """The request to the client. Raises QuestionError: the client does not support it, or it is not allowed."""
    can = client.elicitation if client else None
    if can is None:
        raise QuestionError("elicitation_unsupported", "the client does not support elicitation")
    scrub, message = one_line(scrub), params.get("message")
    message = message if isinstance(message, str) else ""
    message = clean_text(message, scrub, MAX_MESSAGE_CHARACTERS)
    if params.get("mode") == "url":
        if can.url is None:
            raise QuestionError("elicitation_unsupported", "the client does not support elicitation by URL")
        host, url = _page(params.get("url"))
        # Clients of the previous revision require an id, and its upstreams send one.
        name = params.get("elicitationId")
        name = name[:200] if isinstance(name, str) else secrets.token_hex(8)
        shown: dict[str, Json] = {"mode": "url", "url": url, "elicitationId": name}
        return request_of({**shown, "message": f"{upstream} asks you to open a page of {host}: {message}"})
    if not can_show_forms(can):
        raise QuestionError("elicitation_unsupported", "the client does not support elicitation by form")
    schema = params.get("requestedSchema")
    form = _form(schema, scrub)
    for name, asked in form["properties"].items():
        if _is_secret(name, asked):
            raise QuestionError("elicitation_refused", f"{name[:60]!r} asks for a secret, which MCP forbids")
    return request_of({"mode": "form", "message": f"{upstream} asks: {message}", "requestedSchema": form})


def can_show_forms(can: ElicitationCapability) -> bool:
    """Whether a client that supports elicitation supports forms. It does if it declares no mode."""
    return can.form is not None or can.url is None


def _page(url: Json) -> tuple[str, str]:
    text = url if isinstance(url, str) else ""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        is_plain = (
            _PLAIN_HOST.fullmatch(parts.netloc) is not None
            and parts.port != 0  # raises ValueError if the port is invalid
            and is_safe_for_tokens(text)
        )
    except ValueError:
        host, is_plain = "", False
    is_shown_as_it_is = text.isascii() and text.isprintable() and " " not in text and "\\" not in text
    if not (host and is_plain and is_shown_as_it_is) or len(text) > MAX_URL_CHARACTERS:
        raise QuestionError("elicitation_refused", "the page to open does not have a plain https URL")
    return host, text


def _form(schema: Json, scrub: Scrub) -> Json:
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        raise QuestionError("elicitation_refused", "the form has no valid schema")
    if any(
        isinstance(schema[word], dict | list) for word in schema if word not in ("properties", "required")
    ):
        # Such as `allOf` or `$defs`, which may have further fields.
        raise QuestionError("elicitation_refused", "the form has more than plain properties")
    if is_larger(schema, MAX_SCHEMA_CHARACTERS):
        raise QuestionError("elicitation_refused", "the form is too large")
    form = clean_json(schema, scrub, MAX_MESSAGE_CHARACTERS)
    if [*_answers(form)] != [*_answers(schema)]:
        raise QuestionError("elicitation_refused", "the form cannot be shown unchanged")
    return form


def _is_secret(name: str, asked: Json) -> bool:
    """Whether a field asks for a typed secret. Prose may mention secrets; choices and booleans cannot contain one."""
    schemas = [*_schemas(asked)]
    chosen = asked.get("items", {}) if asked.get("type") == "array" else asked
    if asked.get("type") == "boolean" or _is_choice(chosen):
        return False
    titles = [f"{schema.get('title')} | {schema.get('format')}" for schema in schemas]
    words = unicodedata.normalize("NFKC", " | ".join([name, *titles]))
    words = "".join(each for each in words if unicodedata.category(each) != "Cf")  # invisible ones hide words
    return _SECRET.search(_BETWEEN_WORDS.sub(" ", words)) is not None


def _schemas(asked: Json) -> Iterator[dict[str, Json]]:
    """The schema of a field, and those of its items and alternatives. Raises QuestionError: it may have own fields."""
    if not isinstance(asked, dict) or asked.get("type") == "object":
        raise QuestionError("elicitation_refused", "the form has a field of a type that MCP forbids in forms")
    yield asked
    for word, value in asked.items():
        parts = value if isinstance(value, list) and word != "items" else [value]
        if word in ("items", "oneOf", "anyOf"):
            yield from chain.from_iterable(map(_schemas, parts))
        elif any(isinstance(part, dict | list) for part in parts):
            raise QuestionError(
                "elicitation_refused", f"{word[:60]!r} of a field is nested, which MCP forbids in forms"
            )


def _is_choice(asked: dict[str, Json]) -> bool:
    """Whether all values of a field, which `_schemas` has accepted, are given."""
    choices = [asked[word] for word in ("enum", "oneOf", "anyOf") if word in asked]
    return bool(choices) and all(
        isinstance(each, list) and each and all(map(_is_given, each)) for each in choices
    )


def _is_given(part: Json) -> bool:
    """Whether an alternative is a value, none, or a choice of values."""
    return not isinstance(part, dict) or "const" in part or part.get("type") == "null" or _is_choice(part)


def _answers(form: Json) -> Iterator[Json]:
    """The parts of a form that an answer may contain without typing: names, choices and defaults."""
    for name, asked in form["properties"].items():
        yield name
        for each in (asked, asked.get("items")) if isinstance(asked, dict) else ():
            if isinstance(each, dict):
                yield each.get("default")
                yield each.get("enum")
                for choices in (each.get("oneOf"), each.get("anyOf")):
                    if isinstance(choices, list):
                        yield [choice.get("const") for choice in choices if isinstance(choice, dict)]


def request_of(params: dict[str, Json]) -> ElicitRequest:
    """The request to the client. Raises QuestionError: it is not valid."""
    try:
        return ElicitRequest.model_validate({"method": "elicitation/create", "params": params}, by_name=False)
    except ValidationError as error:
        raise QuestionError("elicitation_refused", "the request is not valid MCP") from error


MAX_CHARACTERS: Final = 200_000
"""Size of all texts for the model."""

_PASSED_ON: Final = ("messages", "systemPrompt", "temperature", "stopSequences", "modelPreferences")


def sample(
    upstream: str, params: dict[str, Json], scrub: Scrub, client: ClientCapabilities | None, tokens_left: int
) -> CreateMessageRequest:
    """The request to the client, without tools and context, and with at most `tokens_left` tokens.

    Raises QuestionError: the client does not support sampling, or the request is not allowed.
    """
    if client is None or client.sampling is None:
        raise QuestionError("sampling_unsupported", "the client does not support sampling")
    if params.get("tools") or params.get("toolChoice"):
        raise QuestionError("sampling_refused", "a sampling request may not contain tools")
    passed_on = {key: params[key] for key in _PASSED_ON if params.get(key) is not None}
    if is_larger(passed_on, MAX_CHARACTERS):
        raise QuestionError("sampling_refused", "the text of the sampling request is too long")
    if tokens_left <= 0:
        raise QuestionError(
            "sampling_refused", "the token budget for sampling is used up (sampling.max_tokens)"
        )
    shown = {key: clean_json(value, scrub, MAX_CHARACTERS) for key, value in passed_on.items()}
    prompt = shown.get("systemPrompt")
    shown["systemPrompt"] = f"(Requested by the MCP server {upstream}.)" + (f" {prompt}" if prompt else "")
    wanted = params.get("maxTokens")
    tokens = wanted if isinstance(wanted, int) and wanted > 0 else tokens_left
    shown["maxTokens"] = min(int(tokens), tokens_left)
    request = {"method": "sampling/createMessage", "params": shown}
    try:
        return CreateMessageRequest.model_validate(request, by_name=False)
    except ValidationError as error:
        raise QuestionError("sampling_refused", "the request is not valid MCP") from error


class SamplingDepths:
    """The open sampling requests, each with its client, upstream and script."""

    def __init__(self) -> None:
        self._under_way: list[tuple[str, str, object]] = []

    @contextmanager
    def deeper(self, client: str, upstream: str, script: object, most: int) -> Iterator[None]:
        """Count one sampling request of `script`. Requests of one script are concurrent, so they count as one level.

        Requests of other scripts may be concurrent or nested. That cannot be known, so each counts.

        Raises QuestionError: `most` other scripts wait for samples.
        """
        scripts = {each for *place, each in self._under_way if place == [client, upstream]}
        if len(scripts - {script}) >= most:
            message = f"{most} other scripts of this client wait for samples of the upstream (sampling.depth)"
            raise QuestionError("sampling_refused", message)
        self._under_way.append((client, upstream, script))
        try:
            yield
        finally:
            self._under_way.remove((client, upstream, script))


MAX_QUESTIONS: Final = 20
"""Questions per request, over all upstreams."""

Question: TypeAlias = ElicitRequest | CreateMessageRequest

Ask: TypeAlias = Callable[[Question], Awaitable[dict[str, Json]]]
"""Asks the client and waits for its answer.

Raises MCPError or ValidationError if the client gives no valid answer.
"""


@dataclass(eq=False)
class Questions:
    """The questions of one request. Upstreams may confuse calls of one `owner`; `queue_key` identifies the client."""

    put: Ask
    capabilities: ClientCapabilities | None
    owner: str
    queue_key: str
    depths: SamplingDepths
    decider: Decider = NOBODY
    """The person who is asked."""
    asked: int = 0
    sampled_tokens: Counter[str] = field(default_factory=Counter)

    @cached_property
    def declared(self) -> dict[str, Json]:
        """The client's capabilities for questions of upstreams."""
        if (can := self.capabilities) is None:
            return {}
        declared = can.model_dump(by_alias=True, mode="json", exclude_none=True, include={"elicitation"})
        # Declare sampling without its tools and context, which are not passed on.
        return declared if can.sampling is None else {**declared, "sampling": {}}

    async def form(self, form: ElicitRequest) -> dict[str, Json] | None:
        """The person's answer to a form of the portal itself; None without an answer."""
        try:
            return await self.answered(form)
        except QuestionError:
            return None

    async def answered(self, question: Question) -> dict[str, Json]:
        """The client's answer. Raises QuestionError: it gave none."""
        try:
            answer = await self.put(question)
            # Since 2026-07-28 a client can answer a form with a sample, so the answer is validated here.
            kind = ElicitResult if isinstance(question, ElicitRequest) else CreateMessageResultWithTools
            kind.model_validate(answer, by_name=False)
            return dict(sendable_json(answer))
        except (MCPError, ValueError) as error:
            reason = f": {' '.join(error.message.split())[:200]}" if isinstance(error, MCPError) else ""
            raise QuestionError("question_unanswered", f"the client gave no valid answer{reason}") from error


@dataclass(eq=False)
class CallQuestions:
    """The questions of one upstream during one call; an `upstreams.questions.ServerRequestHandler`."""

    questions: Questions | None
    """None without a client, so none is answered."""
    upstream: Upstream
    spec: UpstreamSection
    own_refusal: QuestionError | None = None
    unclear: QuestionError | None = None

    @property
    def owner(self) -> str:
        return "" if self.questions is None else self.questions.owner

    def capabilities(self) -> dict[str, Json]:
        return {} if self.questions is None else self.questions.declared

    async def answer(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        """The client's answer. Raises QuestionError: the client gave none, or the question is not allowed."""
        own, name, sampling = self.questions, self.upstream.name, self.spec.sampling
        if own is None:
            raise QuestionError("question_unsupported", "there is no client to ask")
        if own.asked >= MAX_QUESTIONS:
            message = f"upstreams have asked {MAX_QUESTIONS} questions for this script, which is the limit"
            raise QuestionError("question_refused", message)
        own.asked += 1
        scrub, can = self.upstream.redact.start, own.capabilities
        if method != SAMPLE or sampling is None:
            return await own.answered(elicitation(name, params, scrub, can))
        with own.depths.deeper(own.queue_key, name, own, sampling.depth):
            request = sample(name, params, scrub, can, sampling.max_tokens - own.sampled_tokens[name])
            own.sampled_tokens[name] += request.params.max_tokens
            return await own.answered(request)

    def not_answered(self, error: QuestionError, *, is_its_own: bool) -> None:
        if is_its_own:
            self.own_refusal = error
        else:
            self.unclear = error

    def refusal(self, failure: str) -> QuestionError | None:
        """The error of an unanswered question, for a call that failed with `failure`; None without such a question.

        A question that cannot be assigned to a call belongs to this one if `failure` contains the error's text.
        """
        if self.own_refusal is None and self.unclear is not None and str(self.unclear) in failure:
            return self.unclear
        return self.own_refusal


_CANNOT_ASK: Final = re.compile(
    r"(?P<handshake>server-(?:initiated|to-client) requests)"
    r"|(?P<roots>list roots not supported|client does not support (?:listing )?roots)"
    r"|(?P<sampling>(?:^|: )sampling not supported$|client does not support sampling)",
    re.IGNORECASE | re.MULTILINE,
)
"""Matches what SDKs say if a server asks a client that did not declare it, or one of 2026-07-28. Names are keys."""


def missing_key(upstream: str, spec: UpstreamSection, failure: str) -> str:
    """A hint at the key without which the upstream could not ask, as its `failure` says; else empty."""
    found = _CANNOT_ASK.search(failure[:MAX_MESSAGE_CHARACTERS])
    if found is None or found.lastgroup is None or getattr(spec, found.lastgroup):
        return ""
    return f"Tell the operator: with `upstreams.{upstream}.{found.lastgroup}` in the manifest it may ask the client."


def comes_in_rounds(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> bool:
    """Whether questions to the client need rounds: since 2026-07-28 servers cannot send requests.

    A request that continues another one always comes in rounds, whatever its client declares: treated as a new one, it
    would do everything twice.
    """
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    can = context.session.client_capabilities
    can_be_asked = can is not None and (can.elicitation is not None or can.sampling is not None)
    return can_be_asked or params.request_state is not None


def ask_by_request(context: ServerRequestContext[Any, Any]) -> Ask:
    """Ask with a request on the stream of the client's request."""
    session = context.session

    async def ask(question: Question) -> dict[str, Json]:
        if not session.can_send_request:
            raise NoBackChannelError(question.method)
        about = ServerMessageMetadata(related_request_id=context.request_id)
        kind = ElicitResult if isinstance(question, ElicitRequest) else CreateMessageResult
        answer = await session.send_request(question, kind, metadata=about)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    return ask

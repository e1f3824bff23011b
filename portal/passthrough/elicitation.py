"""A question of an upstream to the person at the client, as that person is shown it.

Rule 1: whoever reads it knows which upstream asks.
Rule 2: a form that names a secret is refused, and a page is only opened by its whole, plain address.
Rule 3: names and choices in a form are the upstream's own, because it is answered with them: where they cannot be shown
as they are, the form is refused.

Source: MCP 2026-07-28, client/elicitation#security-considerations.
"""

import re
import secrets
import unicodedata
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from mcp_types import ClientCapabilities, ElicitRequest
from pydantic import ValidationError

from manifests.constraints import is_safe_for_tokens
from manifests.json_value import Json
from portal.budget.tokens import compact
from portal.passthrough.clean_json import Scrub, clean_json, clean_text, is_larger, one_line
from upstreams.questions import QuestionError

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
    """The request as the client gets it.

    Raises:
        QuestionError: The client cannot ask that, or nobody should.
    """
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
    if len(compact(form)) > MAX_SCHEMA_CHARACTERS:
        raise QuestionError("elicitation_refused", "it asks with a form that is too large")
    if [*_answers(form)] != [*_answers(schema)]:
        raise QuestionError("elicitation_refused", "it asks with a form that cannot be shown as it is")
    return form


def _answers(form: Json) -> Iterator[Json]:
    """What a form is answered with where nothing is typed: names, choices and defaults."""
    for name, field in form["properties"].items():
        yield name
        for each in (field, field.get("items")) if isinstance(field, dict) else ():
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

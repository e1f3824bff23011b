"""Reads in an upstream's error text which arguments its own validation took exception to.

Upstreams validate with pydantic, zod, jsonschema, ajv, serde and others, and none of them says it in a form that is
agreed on. What is read here only helps: a text that nobody understands names no place.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from manifests.json_value import Json

Place: TypeAlias = tuple[str, ...]
"""The way from the arguments to a value, in the validator's words: names, indices, and what else it puts between."""

MAX_PLACES: Final = 5
"""Places of one text that are told."""

_LONGEST_TEXT: Final = 8_000
_REJECTION: Final = re.compile(
    r"\d validation errors? for |\[type=\w+, input_|validation (?:error|failed)|fail\w* validation|-32602"
    r"|invalid (?:tool )?(?:arguments?|inputs?|param\w*|requests?)\b|is a required property|is not of type"
    r"|missing (?:required|field|propert|argument|param|\d)|unexpected keyword|additional propert"
    r"|unrecognized key|unknown field|unmarshal|deserializ"
    r'|"code"\s*:\s*"(?:invalid|too|unrecognized|not)_',
    re.IGNORECASE,
)
_NO_TOOL: Final = re.compile(r"\b(?:unknown tool|no such tool|tool\b.{0,200}\bnot found)", re.IGNORECASE)
_PYDANTIC: Final = re.compile(r"^(\S[^\n]{0,200})\n +[^\n]{0,4000}\[type=", re.MULTILINE)
_ZOD_PATH: Final = re.compile(r'"path"\s*:\s*(\[[^\[\]]{1,300}\])')
_ZOD_KEYS: Final = re.compile(r'"keys"\s*:\s*(\[[^\[\]]{1,300}\])')
_QUOTED: Final = re.compile(r"(?<![\w])(['\"`])([^'\"`\s]{1,120})\1")
_POINTER: Final = re.compile(r"(?<![\w/:])[a-z]{0,20}/([\w$~-]{1,80}(?:/[\w$~-]{1,80}){0,9})(?![\w/])")
_SAID: Final = re.compile(
    r"(?<![\w.\[\]$-])([A-Za-z_$][\w.\[\]$-]{0,119})(?=:| (?:is|was|are|must|should|cannot|has|have|needs)\b)"
)
_ROOTS: Final = frozenset({"$", "args", "arguments", "body", "data", "input", "params", "properties", "root"})
"""What validators call the arguments as a whole."""

_STEPS: Final = re.compile(r"[^.\[\]/'\"]+")


def is_rejection(text: str) -> bool:
    """Whether an error's text reads as if the arguments had not passed the upstream's own validation."""
    text = text[:_LONGEST_TEXT]
    return _REJECTION.search(text) is not None and not names_no_tool(text)


def names_no_tool(text: str) -> bool:
    """Whether it reads as if the upstream no longer had the tool, which JSON-RPC gives the same number."""
    return _NO_TOOL.search(text[:_LONGEST_TEXT]) is not None


def rejected_places(text: str, is_argument: Callable[[str], bool]) -> list[Place]:
    """The places that a text names, in its order, at most `MAX_PLACES`.

    Validators that write in a form of their own are believed; of what any other text quotes, only what
    `is_argument` by its first step.
    """
    text = text[:_LONGEST_TEXT]
    places = [*_in_its_own_form(text)] or [place for place in _in_prose(text) if is_argument(place[0])]
    return list(dict.fromkeys(places))[:MAX_PLACES]


def _in_its_own_form(text: str) -> Iterator[Place]:
    for found in _PYDANTIC.finditer(text):
        if "validation error" not in found[1]:  # which is about the whole
            yield _steps(found[1])
    for found in _ZOD_PATH.finditer(text):
        yield tuple(map(str, _listed(found[1])))
    for found in _ZOD_KEYS.finditer(text):
        for key in _listed(found[1]):
            yield (str(key),)


def _in_prose(text: str) -> Iterator[Place]:
    found = [
        *((match.start(), match[2]) for match in _QUOTED.finditer(text)),
        *((match.start(), match[1]) for match in _POINTER.finditer(text)),
        *((match.start(), match[1]) for match in _SAID.finditer(text)),
    ]
    for _, written in sorted(found):
        first, *rest = _steps(written) or ("",)
        if first:
            yield (first, *rest)
        if rest and first in _ROOTS:
            yield tuple(rest)


def _steps(written: str) -> Place:
    return tuple(step.strip() for step in _STEPS.findall(written))


def _listed(text: str) -> list[Json]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []

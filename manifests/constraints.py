"""What the sections of portal.yaml are made of: `Section` itself, and strings that fit the place they are used at.

A refusal never repeats the value: it may be a secret.
"""

import re
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, Strict
from pydantic_core import PydanticCustomError

from manifests.hosts import HostPattern
from manifests.json_value import Json


def _empty_is_default(value: Json) -> Json:
    return {} if value is None else value


EMPTY_IS_DEFAULT = BeforeValidator(_empty_is_default)
"""A section with nothing in it (`upstreams:` and only comments below) keeps its defaults."""


class Section(BaseModel):
    """Strict, because `tool_calls: "20"` is more often a slip than a wish."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


Pattern: TypeAlias = Annotated[str, Field(min_length=1, max_length=500)]
Patterns: TypeAlias = Annotated[tuple[Pattern, ...], Strict(False), Field(max_length=1000)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=3600)]

LOOPBACK = ("127.0.0.1", "localhost", "::1")

UNUSABLE = "unusable"
"""The type of all errors raised here. The message reads on after the key's name; the context has a `hint`."""


def refusal(message: str, hint: str) -> PydanticCustomError:
    """What a validator raises. Neither text may hold the value."""
    # Braces in it are no places to be filled in.
    return PydanticCustomError(UNUSABLE, "{message}", {"message": message, "hint": hint})


def _matching(pattern: str, message: str, hint: str = "") -> AfterValidator:
    expression = re.compile(pattern)

    def check(text: str) -> str:
        if not expression.fullmatch(text):
            raise refusal(message, hint)
        return text

    return AfterValidator(check)


def _check_url(text: str) -> str:
    hint = "Write it like https://tickets.example/mcp."
    if re.search(r"[\x00-\x20\x7f]", text):
        raise refusal("contains a space or a control character", hint)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise refusal("must be http:// or https://, a host, and perhaps a port and a path", hint)
    return text


def is_safe_for_tokens(url: str) -> bool:
    """Whether nobody on the way can read what is sent there: https://, or this machine itself."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)


# Patterns in the JSON Schema let every ${...} pass: what it stands for is known only when the portal starts.
_REFERENCE = r"\$\{"

_without_nul = _matching(r"[^\x00]*", "contains a NUL character")
Argument: TypeAlias = Annotated[str, _without_nul]
HostPath: TypeAlias = Annotated[str, Field(min_length=1), _without_nul]

UpstreamName: TypeAlias = Annotated[
    str,
    Field(max_length=100, json_schema_extra={"pattern": "[A-Za-z0-9]"}),
    _matching(
        r"[^\x00-\x1f\x7f]*[A-Za-z0-9][^\x00-\x1f\x7f]*",
        "cannot name an upstream: it gives no Python name",
        "Use at least one ASCII letter or digit, and no control characters; best something like `github`.",
    ),
]

ProfileName: TypeAlias = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_-]+$")]
TenantName: TypeAlias = Annotated[str, Field(max_length=100, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
"""It may name a folder."""
Variable: TypeAlias = Annotated[str, Field(pattern=r"^[^=\x00]+$")]
ScriptVariable: TypeAlias = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName: TypeAlias = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]

Url: TypeAlias = Annotated[
    str,
    Field(json_schema_extra={"pattern": rf"^[hH][tT][tT][pP][sS]?://[^\s]+$|{_REFERENCE}"}),
    AfterValidator(_check_url),
]

RootUri: TypeAlias = Annotated[
    str,
    Field(json_schema_extra={"pattern": rf"^file:///\S*$|{_REFERENCE}"}),
    _matching(r"file:///\S*", "is no root", "Write file:///absolute/folder."),
]

Header: TypeAlias = Annotated[
    str,
    _matching(
        r"[\t\x20-\x7e\x80-\xff]*",
        "contains a line break or another character that HTTP does not allow in a header",
        "If it comes from a file or a variable, look for a newline at its end.",
    ),
]


def _check_token(token: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[\x21-\x7e]+", token.get_secret_value()):
        hint = "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        raise refusal("must be at least one character, all printable ASCII without spaces", hint)
    return token


Token: TypeAlias = Annotated[
    SecretStr, AfterValidator(_check_token), Field(json_schema_extra={"minLength": 1})
]

Host: TypeAlias = Annotated[
    str,
    Field(json_schema_extra={"pattern": rf"^[^\s/@]+$|{_REFERENCE}"}),
    _matching(r"[^\s/@]+", "must be a host, or a host and a port", "Write it like portal.example:8080."),
]


def _check_reachable(text: str) -> str:
    try:
        HostPattern.parse(text)
    except ValueError:
        raise refusal(
            "must name a host, and perhaps a port",
            "Write it like api.example.com, *.example.com, 10.0.0.7:8080 or [fd00::7]; names in ASCII (xn--...).",
        ) from None
    return text


ReachableHost: TypeAlias = Annotated[
    str,
    Field(max_length=300, json_schema_extra={"pattern": r"^[^\s/@]+$"}),
    AfterValidator(_check_reachable),
]

Origin: TypeAlias = Annotated[
    str,
    Field(json_schema_extra={"pattern": rf"^[A-Za-z][A-Za-z0-9+.-]*://[^\s/]+$|{_REFERENCE}"}),
    _matching(
        r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/]+",
        "must be an origin: a scheme, a host and perhaps a port, with no path",
        "Write it like https://app.example.",
    ),
]

"""Building blocks of portal.yaml: `Section`, constrained strings, hosts and addresses.

An error message never repeats the value: it may be a secret.
"""

import base64
import enum
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Any, Final, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    SecretStr,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function

from manifests.json_value import Json
from manifests.names import identifier


class _EmptyIsDefault:
    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(
            lambda value: {} if value is None else value, handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return {"anyOf": [handler(schema), {"type": "null"}]}


EMPTY_IS_DEFAULT: Final = _EmptyIsDefault()
"""An empty section (`upstreams:` with only comments below) keeps its defaults."""


class Section(BaseModel):
    """A section of portal.yaml. It is strict: `tool_calls: "20"` is usually a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    @model_validator(mode="wrap")
    @classmethod
    def _with_hints(cls, data: Json, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Put a `hint` into the context of each error: for an unknown key, the allowed keys."""
        try:
            return handler(data)
        except ValidationError as error:
            found = error.errors(include_url=False)
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        errors = [_with_hint(each, keys) for each in found]
        raise ValidationError.from_exception_data(cls.__name__, errors, hide_input=True)


def _with_hint(error: ErrorDetails, keys: Sequence[str]) -> InitErrorDetails:
    hint, location = error.get("ctx", {}).get("hint", ""), error["loc"]
    if error["type"] == "extra_forbidden" and len(location) == 1:
        near = get_close_matches(str(location[0]), keys, n=1)
        hint = f"{f'Did you mean {near[0]}? ' if near else ''}Allowed here: {', '.join(keys)}."
    hinted = PydanticCustomError(error["type"], "{message}", {"message": error["msg"], "hint": hint})
    return {"type": hinted, "loc": location, "input": error["input"]}


TAG: Final = "\0"
"""Prefix of the parts of an error location that name a union member, not a key."""

Pattern: TypeAlias = Annotated[str, Field(min_length=1, max_length=500)]
Patterns: TypeAlias = Annotated[tuple[Pattern, ...], Strict(False), Field(max_length=1000)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=3600)]

UNUSABLE = "unusable"
"""Type of all errors raised here. The message continues after the key's name. The context has a `hint`."""


def refusal(message: str, hint: str) -> PydanticCustomError:
    """The error that a validator raises. Neither text may contain the value."""
    # As a parameter, because braces in the message are not placeholders.
    return PydanticCustomError(UNUSABLE, "{message}", {"message": message, "hint": hint})


def _matching(pattern: str, message: str, hint: str = "") -> AfterValidator:
    expression = re.compile(pattern)

    def check(text: str) -> str:
        if not expression.fullmatch(text):
            raise refusal(message, hint)
        return text

    return AfterValidator(check)


def _check_sendable(name: str) -> None:
    """Raises ValueError if the HTTP client would not take this host: it raises in the middle of a reload."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", name):
        ip_address(name)
    if not name.isascii():
        import idna  # few need it

        idna.encode(name)


def _check_url(text: str) -> str:
    hint = "Write it like https://tickets.example/mcp."
    if re.search(r"[\x00-\x20\x7f]", text):
        raise refusal("contains a space or a control character", hint)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        _check_sendable(parts.hostname or "")
    except ValueError:
        usable = False
    if not usable:
        raise refusal(
            "must be an http:// or https:// URL with a host, and optionally a port and a path", hint
        )
    return text


def is_safe_for_tokens(url: str) -> bool:
    """Whether no one can read the traffic on its way: https://, or http:// on this machine."""
    parts = urlsplit(url)
    is_local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    return parts.scheme == "https" or (parts.scheme == "http" and is_local)


_without_nul = _matching(r"[^\x00]*", "contains a NUL character")
Argument: TypeAlias = Annotated[str, _without_nul]
HostPath: TypeAlias = Annotated[str, Field(min_length=1), _without_nul]


def _check_upstream_name(text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", text) or not identifier(text).strip("_"):
        hint = "Use letters and digits, and no control characters, like `github`."
        raise refusal("cannot name an upstream: it has no Python name", hint)
    return text


UpstreamName: TypeAlias = Annotated[str, Field(max_length=100), AfterValidator(_check_upstream_name)]

ProfileName: TypeAlias = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_-]+$")]
TenantName: TypeAlias = Annotated[str, Field(max_length=100, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
"""Also the name of a folder."""
Variable: TypeAlias = Annotated[str, Field(pattern=r"^[^=\x00]+$")]
ScriptVariable: TypeAlias = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName: TypeAlias = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]

FunctionName: TypeAlias = Annotated[
    str,
    Field(max_length=500),
    _matching(r"[^\W\d]\w*\.[^\W\d]\w*", "is not a function", "Write it as scripts do, like search.web."),
]

MiddlewareName: TypeAlias = Annotated[
    str,
    Field(max_length=500),
    _matching(
        r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*",
        "does not name middleware",
        "Write package.module:name, like `redaction:mask` for the function mask in redaction.py.",
    ),
]

Url: TypeAlias = Annotated[str, AfterValidator(_check_url)]


def _check_safety(url: str) -> str:
    if not is_safe_for_tokens(url):
        raise refusal(
            "is not https://", "http:// is allowed only on this machine, like http://127.0.0.1:8080."
        )
    return url


SafeUrl: TypeAlias = Annotated[Url, AfterValidator(_check_safety)]

RedirectPath: TypeAlias = Annotated[
    str, Field(min_length=1, pattern=r"^(/[A-Za-z0-9_-][A-Za-z0-9._~-]*)*/?$")
]
"""A path that browsers and servers leave unchanged."""

_OWN: Final = "client_id|code_challenge(_method)?|redirect_uri|resource|response_type|scope|state"
AuthorizeParameter: TypeAlias = Annotated[
    str, _matching(rf"(?!({_OWN})$)[!-~]+", "is a parameter that the portal sets itself")
]

RootUri: TypeAlias = Annotated[
    str, _matching(r"file:///\S*", "is not a root URI", "Write file:///absolute/folder.")
]

Header: TypeAlias = Annotated[
    str,
    _matching(
        r"[\t\x20-\x7e]*",
        "contains a line break, or a character outside ASCII: neither can be sent in an HTTP header",
        "If it comes from a file or a variable, check for a newline at its end. Encode other letters, like Zo%C3%AB.",
    ),
]


MAKE_SECRET: Final = "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"


def _check_token(token: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[\x21-\x7e]+", token.get_secret_value()):
        raise refusal("must be printable ASCII without spaces, at least one character", MAKE_SECRET)
    return token


Token: TypeAlias = Annotated[SecretStr, AfterValidator(_check_token)]


def _check_key(key: SecretStr) -> SecretStr:
    if len(key.get_secret_value()) < SHORTEST_KEY:
        raise refusal(f"must have at least {SHORTEST_KEY} characters", MAKE_SECRET)
    return key


SHORTEST_KEY: Final = 16
Key: TypeAlias = Annotated[Token, AfterValidator(_check_key)]
"""A secret that encrypts or signs."""


def _check_webhook_secret(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if text.startswith("whsec_"):
        try:
            length = len(base64.b64decode(text.removeprefix("whsec_"), validate=True))
        except ValueError:
            length = 0
        if not 24 <= length <= 64:
            raise refusal(
                "must be 24 to 64 bytes in base64 after whsec_", "Copy it whole, or use another text."
            )
    return secret


WebhookSecret: TypeAlias = Annotated[Key, AfterValidator(_check_webhook_secret)]
"""`whsec_` and 24 to 64 bytes in base64, or any other key. Source: Standard Webhooks, signature scheme."""

Host: TypeAlias = Annotated[
    str,
    _matching(r"[^\s/@]+", "must be a host, optionally with a port", "Write it like portal.example:8080."),
]


def _check_host(text: str) -> str:
    try:
        HostPattern.parse(text)
    except ValueError:
        raise refusal(
            "must be a host, optionally with a port",
            "Write it like api.example.com, *.example.com, 10.0.0.7:8080 or [fd00::7]. Names are ASCII (xn--...).",
        ) from None
    return text


HostPatternText: TypeAlias = Annotated[str, Field(max_length=300), AfterValidator(_check_host)]


def _check_network(text: str) -> str:
    try:
        is_one = ip_network(text).prefixlen > 0
    except ValueError:
        is_one = False
    if not is_one:
        hint = "Write it like 10.0.0.5, 10.0.0.0/8 or fd00:1::/64."
        raise refusal("must be an address, or a network without host bits and not of all addresses", hint)
    return text


Network: TypeAlias = Annotated[str, AfterValidator(_check_network)]

Origin: TypeAlias = Annotated[
    str,
    _matching(
        r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/]+",
        "must be an origin: a scheme, a host and optionally a port, without a path",
        "Write it like https://app.example.",
    ),
]


Address: TypeAlias = IPv4Address | IPv6Address

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Resolves a host and a port to addresses. Raises OSError if there are none."""


def addresses_in(found: Iterable[tuple[Any, ...]]) -> list[Address]:
    """The addresses that `getaddrinfo` found, without their zones: a zone does not change an address's class."""
    return [ip_address(str(place[0]).partition("%")[0]) for *_, place in found]


Approver: TypeAlias = Annotated[
    str,
    Field(max_length=1000),
    _matching(
        r"profile:[A-Za-z0-9_-]+|token:[A-Za-z][A-Za-z0-9_-]*|claim:([^=]+|.+://.+)=[^=]+",
        "names no approver",
        'Write "claim:scope=approve", "profile:lead" or "token:ops". For a value with = give its people a profile.',
    ),
]
"""`claim:NAME=VALUE`, split at the last `=`. Only a NAME that is a URL may have another one."""


class AddressClass(enum.Enum):
    """The grant that a script needs to reach an address."""

    PUBLIC = "that the host is allowed"
    PRIVATE = "that the host may be private"
    BY_ADDRESS = "the address itself"
    NEVER = "no grant suffices"


def classify_address(address: Address) -> AddressClass:
    """The class of an address.

    Source: IANA's registries of special-purpose addresses, RFC 6890 and its updates, as of 2026.
    """
    # A network of the other version contains no address.
    for networks, found in _CLASSES:
        if any(address in network for network in networks):
            return found
    is_global = address.version == 4 or address in _GLOBAL_IPV6
    return AddressClass.PUBLIC if is_global else AddressClass.NEVER


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(map(ip_network, text.split()))


# Cloud metadata services, which hand out a machine's secrets. One has an ordinary public address.
_METADATA = _networks(
    "169.254.169.254 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::/32 fd20:ce::254 fd00:42::42"
)
_PRIVATE = _networks("10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 172.16.0.0/12 192.168.0.0/16 ::1 fc00::/7")
_LINK_LOCAL = _networks("169.254.0.0/16 fe80::/10")
_GLOBAL_IPV6 = IPv6Network("2000::/3")
# Unspecified, reserved, multicast, documentation, benchmarks; and addresses that embed another address: Teredo and
# others in 2001::/23, 6to4 in 2002::/16 and its relays. IPv4 in IPv6 and NAT64 are outside of 2000::/3.
_SPECIAL = _networks(
    """
    0.0.0.0/8 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.175.48.0/24 198.18.0.0/15
    198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
    2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20
    """
)
_CLASSES = (
    (_METADATA, AddressClass.BY_ADDRESS),
    (_PRIVATE, AddressClass.PRIVATE),
    (_LINK_LOCAL, AddressClass.BY_ADDRESS),
    (_SPECIAL, AddressClass.NEVER),
)
"""The order matters: a metadata service may be within a private network."""


DEFAULT_PORTS = {"http": 80, "https": 443}

_PATTERN = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<any>\*)|(?P<suffix>\*\.)?(?P<name>[^\[\]:/@*\s]+))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# The C library reads a name that ends like this as an address: 2130706433, 0x7f.1, 127.1.
_DISGUISED = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_CHARS = 253


@dataclass(frozen=True, slots=True)
class HostPattern:
    """A canonical host, `*.` and a host for every name below it, or `*` for all.

    Without a `port` it matches the default port of the URL's scheme.
    """

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a pattern. Raises ValueError for any other text."""
        found = _PATTERN.fullmatch(text)
        if found is None or (found["port"] and not 0 < int(found["port"]) < 65536):
            raise ValueError("not a host, or a host and a port")
        host = found["any"] or canonical_host(found["address"] or found["name"])
        if found["suffix"]:
            if is_address(host):
                raise ValueError("an address has no subdomains")
            host = f"*.{host}"
        return cls(host, int(found["port"]) if found["port"] else None)

    def matches(self, scheme: str, host: str, port: int) -> bool:
        """Whether it matches this canonical host and port. `*.example.com` does not match `example.com`."""
        return port == (self.port or DEFAULT_PORTS[scheme]) and self._covers_host(host)

    def covers(self, other: "HostPattern") -> bool:
        """Whether it matches every host that the other pattern matches."""
        return self.port == other.port and self._covers_host(other.host)

    def _covers_host(self, host: str) -> bool:
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else self.host in ("*", host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def canonical_host(text: str) -> str:
    """An address as Python writes it, or a name in lower case without a trailing dot.

    Raises ValueError for anything else, such as a disguised address (`0x7f.1`).
    """
    if "%" in text:
        raise ValueError("an address must not have a zone")
    try:
        return str(ip_address(text))
    except ValueError:
        name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _MAX_CHARS or not all(map(_LABEL.fullmatch, labels)) or _DISGUISED.fullmatch(labels[-1]):
        raise ValueError("neither a host name nor an address in its usual notation")
    return name


def is_address(host: str) -> bool:
    return ":" in host or _DISGUISED.fullmatch(host.rpartition(".")[2]) is not None

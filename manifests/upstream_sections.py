"""The sections of `upstreams` in portal.yaml."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Strict, Tag, model_validator

from manifests.constraints import (
    EMPTY_IS_DEFAULT,
    TAG,
    UNUSABLE,
    Argument,
    Header,
    HeaderName,
    HostPath,
    Patterns,
    RootUri,
    Seconds,
    Section,
    Url,
    Variable,
    is_safe_for_tokens,
    refusal,
)
from manifests.grants import Hints, ToolRules
from manifests.json_value import Json
from manifests.names import Glob, ToolNames

ClientText: TypeAlias = Annotated[Argument, Field(min_length=1, max_length=4096)]


class OAuthSettings(Section):
    """OAuth of an upstream that is reached by URL. All of it is optional: `oauth: {}` is enough for most."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """authorization_code (the default): you sign in with `mcp-code-portal login NAME`. client_credentials: the portal
    signs in as itself, with client_id and client_secret."""
    client_id: ClientText | None = None
    """The client that you registered. Default: the portal registers one at each login, if the server allows that."""
    client_secret: ClientText | None = Field(default=None, repr=False)
    """Its secret, if it has one. Write a reference, not the secret."""
    client_metadata_url: Url | None = None
    """An https:// document that describes the client, for servers that take its URL as the client_id."""
    issuer: Url | None = None
    """The authorization server, as it names itself; needed with client_secret. Default: what the upstream names."""
    scope: Annotated[Argument, Field(max_length=2000)] | None = None
    """What to ask for, separated by spaces. Default: what the upstream says that it needs."""
    redirect_port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """The port of http://127.0.0.1:PORT/callback, if the client was registered with one. Default: any that is free."""
    keep_in: Literal["file", "keyring"] = "file"
    """Where tokens are kept: in a file of yours alone (the default) or in the system keyring."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.grant == "client_credentials" and not (self.client_id and self.client_secret):
            raise refusal("lacks client_id or client_secret, which client_credentials needs", "Give both.")
        if self.client_secret and not (self.client_id and self.issuer):
            raise refusal(
                "has a client_secret, but no issuer or client_id to go with it",
                "Name the authorization server as issuer: the secret is sent nowhere else.",
            )
        if self.client_metadata_url and (
            self.client_id or not self.client_metadata_url.startswith("https://")
        ):
            raise refusal(
                "has a client_metadata_url that is not https:// or stands beside a client_id", "Keep one."
            )
        return self


class RetryRules(Section):
    """Which calls are sent again after a failure that may pass.

    A tool that declares `readOnlyHint` or `idempotentHint` may be repeated; another one only if `allow` has it.
    A pattern is compared with the tool's name, the function's name, upstream.tool and namespace.function, one of deny
    with the name that the function has where no other tool takes it, too; deny wins.
    """

    attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """Times a call that is safe to repeat is sent at most, within call_seconds (default 3). Repeats are at most a fifth
    of an upstream's calls, and three. Does not cover a call that never left the portal."""
    allow: Patterns = ()
    """Tools that may be repeated although they declare neither readOnlyHint nor idempotentHint. Default: none."""
    deny: Patterns = ()
    """Tools that are never repeated, whatever they declare. Default: none."""


def may_repeat(rules: RetryRules, names: ToolNames, annotations: Mapping[str, Json]) -> bool:
    """Whether a second call of the tool does no more than the first, as far as it and the operator say.

    One that declares that it destroys does not only read, whatever else it declares.

    Source: MCP 2025-11-25, schema#toolannotations: `idempotentHint` means something for tools that are not read-only.
    """
    if rules.attempts == 1 or any(Glob.of(pattern).restricts(names) for pattern in rules.deny):
        return False
    declares = Hints.of(annotations).readonly or annotations.get("idempotentHint") is True
    return declares or any(Glob.of(pattern).fits(names.granting) for pattern in rules.allow)


class SamplingRules(Section):
    """How far an upstream may use the model of the client whose calls it works on."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Tokens that it may have sampled for one script (default 1000). More is lowered to what is left, then refused."""
    depth: Annotated[int, Field(ge=1, le=10)] = 1
    """Scripts of one client that may wait for its samples at once (default 1): a sampled model may run a script,
    too."""


class UpstreamSection(Section):
    """What every upstream may say, however it is reached."""

    tools: Annotated[ToolRules, EMPTY_IS_DEFAULT] = ToolRules()
    """Narrows capabilities.tools for this upstream: a call must pass both."""
    call_seconds: Seconds = 60.0
    """Seconds one call may take, waiting for a connection included (default 60). A longer one ends in an error in the
    script, and its outcome is unknown."""
    connect_seconds: Seconds = 60.0
    """Seconds to connect and to list the tools (default 60). After that the upstream is down. Does not cover calls."""
    message_bytes: Annotated[int, Field(ge=65_536, le=256 * 1024 * 1024)] = 16 * 1024 * 1024
    """Bytes of one message that it may send (default 16777216, 16 MiB). A longer one fails its call; on stdio and sse
    it ends the connection, and with it all calls under way."""
    start: Literal["eager", "lazy"] = "eager"
    """eager (the default) connects when the portal starts, lazy when a script first calls. A lazy one that was never
    listed is started once, to be listed."""
    retries: Annotated[RetryRules, EMPTY_IS_DEFAULT] = RetryRules()
    """Which calls are sent again after a failure that may pass."""
    elicitation: bool = True
    """Whether it may ask the person at the client (default true). Nothing that looks like a secret is asked for."""
    sampling: SamplingRules | None = None
    """How far it may use the client's model. Default: not at all."""
    roots: Annotated[tuple[RootUri, ...], Strict(False), Field(max_length=100)] = ()
    """file:// URIs that it is told when it asks for roots. Default: it is told of none."""


class StdioUpstream(UpstreamSection):
    """An MCP server that the portal starts as a child process and speaks to over its stdin and stdout."""

    command: HostPath
    """The program to start: a name found on PATH, or a path relative to this file's folder."""
    args: Annotated[tuple[Argument, ...], Strict(False)] = Field(default=(), repr=False)
    """The program's arguments, one per item."""
    env: Annotated[dict[Variable, Argument], EMPTY_IS_DEFAULT] = Field(default_factory=dict, repr=False)
    """Environment variables of the child: these, PATH, HOME, LANG and TMPDIR; no others."""
    cwd: HostPath | None = None
    """The child's working directory, relative to this file's folder. Default: that folder."""
    idle_stop_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Seconds without a call after which the child is stopped, until the next call. Default: never."""


class HttpUpstream(UpstreamSection):
    """An MCP server that is reached by URL."""

    url: Url = Field(repr=False)
    """The MCP endpoint, http:// or https://."""
    headers: Annotated[dict[HeaderName, Header], EMPTY_IS_DEFAULT] = Field(default_factory=dict, repr=False)
    """HTTP headers of every request, like Authorization."""
    transport: Literal["streamable-http", "sse"] = "streamable-http"
    """sse for a server that speaks only the older HTTP+SSE transport."""
    oauth: OAuthSettings | None = None
    """OAuth; `oauth: {}` and `mcp-code-portal login NAME` are enough for most. Default: none."""

    @model_validator(mode="after")
    def _keeps_tokens_safe(self) -> Self:
        if self.oauth is None:
            return self
        if any(name.lower() == "authorization" for name in self.headers):
            hint = "Keep one of them: OAuth writes that header itself."
            raise refusal("has oauth and a header Authorization", hint)
        if not is_safe_for_tokens(self.url):
            hint = "Use https://; http:// only on this machine, like http://127.0.0.1:8080/mcp."
            raise refusal("has oauth, but a url that is not https://", hint)
        return self


def _kind(value: Json) -> str | None:
    """Which of the two an upstream is; None if it is neither, or tries to be both."""
    if isinstance(value, StdioUpstream | HttpUpstream):
        return _COMMAND if isinstance(value, StdioUpstream) else _URL
    kinds = [f"{TAG}{key}" for key in ("command", "url") if isinstance(value, dict) and key in value]
    return kinds[0] if len(kinds) == 1 else None


_COMMAND, _URL = f"{TAG}command", f"{TAG}url"

Upstream: TypeAlias = Annotated[
    Annotated[StdioUpstream, Tag(_COMMAND)] | Annotated[HttpUpstream, Tag(_URL)],
    Discriminator(
        _kind,
        custom_error_type=UNUSABLE,
        custom_error_message="must be a mapping with a command or a url, and not with both",
        custom_error_context={
            "hint": "command starts a program and speaks to it over stdio; url reaches a server."
        },
    ),
]

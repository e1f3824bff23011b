"""What portal.yaml may say. Parsed once by `manifests.loader`; everybody else trusts these types.

What stands below a field reaches operators: it is in the JSON Schema, from which editors complete and explain the file.
"""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag, model_validator

from manifests.constraints import (
    EMPTY_IS_DEFAULT,
    TAG,
    UNUSABLE,
    Argument,
    Header,
    HeaderName,
    Host,
    HostPath,
    Origin,
    Patterns,
    ProfileName,
    RootUri,
    ScriptVariable,
    Seconds,
    Section,
    TenantName,
    Token,
    UpstreamName,
    Url,
    Variable,
    is_safe_for_tokens,
    refusal,
)
from manifests.grants import FileGrant, FlowRule, Hints, Hosts, Limits, NetworkGrant, ToolRules
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
    """Which of the two an upstream is; None if it is neither."""
    if isinstance(value, StdioUpstream) or (isinstance(value, dict) and "command" in value):
        return f"{TAG}command"
    return f"{TAG}url" if isinstance(value, dict | HttpUpstream) else None


def _with_kind(value: Json) -> Json:
    if isinstance(value, dict) and ("command" in value) is ("url" in value):
        told = (
            f"needs a command or a url, and not both; it has {', '.join(map(repr, value))[:200] or 'nothing'}"
        )
        raise refusal(told, "command starts a program and speaks to it over stdio; url reaches a server.")
    return value


Upstream: TypeAlias = Annotated[
    Annotated[StdioUpstream, Tag(f"{TAG}command")] | Annotated[HttpUpstream, Tag(f"{TAG}url")],
    Discriminator(
        _kind, custom_error_type=UNUSABLE, custom_error_message="must be a mapping with a command or a url"
    ),
    BeforeValidator(_with_kind),
]


class Capabilities(Section):
    """What every script may do."""

    tools: Annotated[ToolRules, EMPTY_IS_DEFAULT] = ToolRules()
    """Which tools scripts may call."""
    limits: Annotated[Limits, EMPTY_IS_DEFAULT] = Limits()
    """What one run of a script may use."""
    flows: Annotated[tuple[FlowRule, ...], Strict(False), Field(max_length=1000)] = ()
    """Where what came from one upstream may not go. Default: no such rule."""
    files: FileGrant | None = None
    """A folder in which scripts have files. Default: none, and no files at all."""
    network: NetworkGrant | None = None
    """Hosts that scripts may fetch from. Default: none, and no network at all."""
    environment: Annotated[dict[ScriptVariable, Argument], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict, repr=False
    )
    """What every script, and with it the model, sees in os.environ, and nothing else. Default: none."""


class BoundToken(Section):
    """A bearer token of HTTP clients, and what its bearers may do."""

    token: Token = Field(repr=False)
    """The token. Write ${NAME} and keep it in the environment."""
    profile: ProfileName | None = None
    """The profile that narrows what its bearers may do. Default: none does."""
    tenant: TenantName | None = None
    """Whose token it is: tokens of one tenant have files together (files.share: tenant). Default: nobody's."""


class ServerSettings(Section):
    """How the portal itself serves."""

    output_tokens: Annotated[int, Field(ge=100, le=10_000_000)] = 6000
    """Tokens (o200k_base) of one answer to the model (default 6000). A longer one is cut by its structure and says what
    was left out. Does not cover images and other binary content."""
    start_seconds: Annotated[float, Field(ge=0, le=600)] = 10.0
    """Seconds that a script or a search waits for upstreams which are still starting (default 10), counted from the
    portal's start. Then it goes on without them and says so."""
    check: Literal["strict", "warn", "off"] = "strict"
    """What a finding of the type check does: refuse the script (strict, the default), a notice (warn), or off."""
    repairs: bool = True
    """Whether arguments that do not fit are repaired where it is certain what was meant (default true), like a number
    as a text. Each repair is told in a notice. With false such calls are refused."""
    observe_results: bool = True
    """Whether stubs show what results were seen to look like, of tools that declare nothing about theirs (default
    true): kinds, keys and nesting, never values."""
    observed_folder: HostPath | None = None
    """Where that is kept, relative to this file. Default: mcp-code-portal/observed in $XDG_STATE_HOME."""
    token: Token | None = None
    """The bearer token HTTP clients must send, as ${NAME}. Without one the portal serves on loopback only."""
    tokens: Annotated[tuple[BoundToken, ...], Strict(False), Field(max_length=1000)] = Field(
        default=(), repr=False
    )
    """More tokens that HTTP clients may send, each perhaps bound to a profile. Default: none."""
    allowed_hosts: Annotated[tuple[Host, ...], Strict(False)] = ()
    """Host headers to accept over HTTP beside those of loopback, like portal.example:8080."""
    allowed_origins: Annotated[tuple[Origin, ...], Strict(False)] = ()
    """Origin headers to accept over HTTP, like https://app.example. Default: loopback only."""
    offers: Annotated[tuple[Literal["resources", "prompts"], ...], Strict(False), Field(max_length=2)] = ()
    """What of its upstreams is offered to clients beside the two tools: resources, prompts, both or none (the
    default)."""
    progress_seconds: Seconds = 5.0
    """Seconds between two notices of progress to a client that wants them (default 5), while a script runs."""
    workers: int | None = Field(default=None, ge=1, le=256)
    """Sandbox processes, so scripts that run at once. Default: one per processor and at least 2; up to 8 per processor
    while scripts wait for slow calls."""
    component: HostPath | None = None
    """The sandbox's component, made by `mcp-code-portal bake`, relative to this file. Default: the portal's own."""
    queue: Annotated[int, Field(ge=0, le=100_000)] = 1000
    """Scripts that may wait for a sandbox process (default 1000); one of more than 64 KiB counts as several. One more
    is refused, as sandbox_busy. Does not cover runs in sessions."""
    queue_seconds: Seconds = 60.0
    """Seconds a script may wait for a sandbox process (default 60). Then it is refused, as sandbox_busy."""
    sessions: Annotated[int, Field(ge=0, le=1000)] = 8
    """Sessions kept at once (default 8). One more ends the session that was idle longest."""
    session_idle_seconds: Annotated[float, Field(gt=0, le=86_400)] = 900.0
    """Seconds a session is kept without a run (default 900). Then its variables are gone."""


class AuditSettings(Section):
    """An audit log: JSON lines, each with the hash of the one before it."""

    to: HostPath
    """stderr, or a file relative to this file. While it cannot be written to, only readOnlyHint tools are called."""
    sync: bool = False
    """Whether each line waits for the disk, twice for each call (default false), and so survives a power failure."""


class ProfileTools(ToolRules):
    """Which of the tools that capabilities.tools grants the profile leaves. Patterns mean what they mean there."""

    destructive: Literal["refuse"] | None = None
    """refuse: tools that declare themselves destructive are taken away unless allow here names them. Default: as in
    capabilities.tools."""


class Profile(Section):
    """What is left of capabilities for the callers bound to it. Everything here narrows; what is not said stays."""

    tools: Annotated[ProfileTools, EMPTY_IS_DEFAULT] = ProfileTools()
    """Which tools are left."""
    limits: Annotated[Limits, EMPTY_IS_DEFAULT] = Limits()
    """Lower limits for one run. What is not said here is as in capabilities.limits."""
    flows: Annotated[tuple[FlowRule, ...], Strict(False), Field(max_length=1000)] = ()
    """Where what came from one upstream may not go, beside capabilities.flows."""
    files: Literal["none", "read"] | None = None
    """none: no files; read: what all scripts share is read only. Default: as in capabilities.files."""
    network: Hosts | None = None
    """Those hosts of capabilities.network that are left; [] for none of them. Default: all of them."""
    environment: Annotated[tuple[ScriptVariable, ...], Strict(False), Field(max_length=1000)] | None = None
    """Names of the variables of capabilities.environment that are left. Default: all of them."""


class PortalManifest(Section):
    """portal.yaml, the manifest of mcp-code-portal. Everything in it is optional."""

    upstreams: Annotated[dict[UpstreamName, Upstream], EMPTY_IS_DEFAULT] = Field(default_factory=dict)
    """The MCP servers behind the portal. The key names the upstream; scripts see it as a Python name."""
    capabilities: Annotated[Capabilities, EMPTY_IS_DEFAULT] = Capabilities()
    """What every script may do. ${NAME} has a meaning only in environment."""
    profiles: Annotated[dict[ProfileName, Annotated[Profile, EMPTY_IS_DEFAULT]], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict
    )
    """Named sets of narrower capabilities. A caller is bound to one by server.tokens or by --profile."""
    audit: AuditSettings | None = None
    """Where to write down what was run and called. Default: nowhere."""
    server: Annotated[ServerSettings, EMPTY_IS_DEFAULT] = ServerSettings()
    """How the portal itself serves."""


FILE = "portal.schema.json"


def schema_text() -> str:
    """The schema as it ships."""
    return files("manifests").joinpath(FILE).read_text(encoding="utf-8")


def generated_schema() -> str:
    """The schema as the models have it now."""
    # Pydantic reads what stands below fields itself if a model asks for it, but then at each start, in 25 ms.
    from pydantic._internal._docs_extraction import extract_docstrings_from_cls

    schema = PortalManifest.model_json_schema(ref_template="#/definitions/{model}")
    definitions = schema["definitions"] = schema.pop("$defs")
    models = {each.__name__: each for each in _models(Section)}
    for name, described in {**definitions, PortalManifest.__name__: schema}.items():
        for base in (each for each in reversed(models[name].__mro__) if issubclass(each, Section)):
            for key, text in extract_docstrings_from_cls(base, use_inspect=True).items():
                field = models[name].model_fields[key].alias or key
                known = described["properties"][field]
                known["description"] = " ".join(text.split())
                known.pop("title", None)
                if isinstance(known.get("default"), dict):  # a whole section, which editors would insert
                    del known["default"]
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "title": "portal.yaml"}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _models(base: type[Section]) -> Iterator[type[Section]]:
    yield base
    for each in base.__subclasses__():
        yield from _models(each)


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(generated_schema(), encoding="utf-8")

"""The sections and keys of portal.yaml. `manifests.loader` parses it once; all other code trusts these types.

Operators read the docstrings of fields: the JSON Schema contains them, and editors show them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    AnyHttpUrl,
    BeforeValidator,
    Discriminator,
    Field,
    Strict,
    Tag,
    ValidationError,
    model_validator,
)

from manifests.constraints import (
    EMPTY_IS_DEFAULT,
    TAG,
    UNUSABLE,
    Approver,
    Argument,
    AuthorizeParameter,
    FunctionName,
    Header,
    HeaderName,
    Host,
    HostPath,
    Key,
    MiddlewareName,
    Network,
    Origin,
    Patterns,
    ProfileName,
    RedirectPath,
    RootUri,
    SafeUrl,
    ScriptVariable,
    Seconds,
    Section,
    TenantName,
    Token,
    UpstreamName,
    Url,
    Variable,
    WebhookSecret,
    is_safe_for_tokens,
    refusal,
)
from manifests.grants import FileGrant, FlowRule, Hints, Hosts, Limits, NetworkGrant, ToolRules
from manifests.json_value import Json
from manifests.kernels import PYTHON, KernelName
from manifests.names import Glob, ToolNames

ClientText: TypeAlias = Annotated[Argument, Field(min_length=1, max_length=4096)]


class OAuthSettings(Section):
    """OAuth of an HTTP upstream. Every key is optional: `oauth: {}` is enough for most."""

    per: Literal["portal", "caller"] = "portal"
    """The login that calls use. portal (the default): one for all. caller: each person who signed in (server.auth)
    signs in at the upstream once; its tools are listed with the portal's login."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """authorization_code (the default): you sign in with `mcp-code-portal login NAME`. client_credentials: the portal
    signs in with client_id and client_secret."""
    client_id: ClientText | None = None
    """A registered client. Default: the portal registers one at each login, if the server allows that."""
    client_secret: ClientText | None = Field(default=None, repr=False)
    """The secret of a confidential client. Write a reference, not the secret itself."""
    token_endpoint_auth_method: Literal["client_secret_basic", "client_secret_post"] | None = None
    """How client_secret is sent: in a header (basic) or in the form (post). Default: basic, if the server offers it."""
    client_metadata_url: Url | None = None
    """The https:// URL of a client metadata document, for servers that accept it as the client_id."""
    issuer: Url | None = None
    """The authorization server's issuer URL; client_secret needs it, or token_url. Default: what the upstream names."""
    authorize_url: SafeUrl | None = None
    """The authorization endpoint of a server without usable metadata; then nothing is discovered."""
    token_url: SafeUrl | None = None
    """The token endpoint of such a server."""
    scope: Annotated[Argument, Field(max_length=2000)] | None = None
    """The scopes to request, separated by spaces. Default: those that the upstream asks for."""
    redirect_host: Literal["127.0.0.1", "localhost"] = "127.0.0.1"
    """The host of the redirect URI, as the client was registered with it (default 127.0.0.1). If the portal registers
    the client, and the server refuses this host, the portal tries the other one."""
    redirect_port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """The port of the redirect URI, if the client was registered with one. Default: any free port."""
    redirect_path: RedirectPath = "/callback"
    """The path of the redirect URI (default /callback)."""
    authorize_parameters: Annotated[dict[AuthorizeParameter, ClientText | None], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict, repr=False
    )
    """Further parameters of the authorization request, like {access_type: offline}. null leaves out one that the portal
    would send: {prompt: null}. Default: prompt=consent, if the scope has offline_access."""
    send_resource: bool = True
    """Whether the upstream is named as the `resource` of its tokens (default true), as MCP requires. false: for servers
    that refuse this parameter, like Entra ID. The scope alone then decides where their tokens work."""
    pkce: Literal["required", "assumed"] = "required"
    """required (the default): no login at a server whose metadata does not offer PKCE with S256. assumed: the server is
    known to support it, and only its metadata lacks it."""
    keep_in: Literal["file", "keyring"] = "file"
    """Where tokens are stored: in a file that only you can read (the default) or in the system keyring."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.grant == "client_credentials" and not (self.client_id and self.client_secret):
            raise refusal("client_credentials requires client_id and client_secret", "Set both.")
        if self.grant == "client_credentials" and self.per == "caller":
            raise refusal("has per: caller, but client_credentials name no person", "Keep one of them.")
        if self.grant == "authorization_code" and bool(self.authorize_url) != bool(self.token_url):
            raise refusal("has one of authorize_url and token_url", "Set both, or none.")
        if self.client_secret and not (self.client_id and (self.issuer or self.token_url)):
            raise refusal(
                "has a client_secret, but lacks client_id, or issuer and token_url",
                "Set issuer to the authorization server. The secret is sent only there.",
            )
        if self.client_metadata_url and (
            self.client_id or not self.client_metadata_url.startswith("https://")
        ):
            raise refusal(
                "has a client_metadata_url that is not https://, or a client_id beside it", "Keep one."
            )
        return self


class RetryRules(Section):
    """Which calls are retried after a transient failure.

    A call is retried if its tool declares `readOnlyHint` or `idempotentHint`, or if `allow` matches it. Patterns match
    the tool's name, the function's name, upstream.tool and namespace.function. `deny` also matches the function's
    default name, and wins.
    """

    attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """At most this many attempts of a retryable call, within call_seconds (default 3). Does not cover unsent calls."""
    allow: Patterns = ()
    """Tools to retry although they declare neither readOnlyHint nor idempotentHint. Default: none."""
    deny: Patterns = ()
    """Tools that are never retried, whatever they declare. Default: none."""


def may_repeat(rules: RetryRules, names: ToolNames, annotations: Mapping[str, Json]) -> bool:
    """Whether a call of the tool may be made twice, according to its annotations and the operator.

    A tool that declares `destructiveHint` is not read-only, whatever else it declares.

    Source: MCP 2025-11-25, schema#toolannotations: `idempotentHint` means something for tools that are not read-only.
    """
    if any(Glob.of(pattern).restricts(names) for pattern in rules.deny):
        return False
    declares = Hints.of(annotations).readonly or annotations.get("idempotentHint") is True
    return declares or any(Glob.of(pattern).fits(names.allow_names) for pattern in rules.allow)


class SamplingRules(Section):
    """How much an upstream may use the model of the client that called it (MCP sampling)."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Tokens that the upstream may have sampled per script (default 1000). A larger request is lowered to the rest;
    without a rest it is refused."""
    depth: Annotated[int, Field(ge=1, le=10)] = 1
    """Scripts of one client that may wait for samples at once (default 1). A sampled model may itself run a script."""


class UpstreamSection(Section):
    """The keys of every upstream, whatever its transport."""

    tools: Annotated[ToolRules, EMPTY_IS_DEFAULT] = ToolRules()
    """Narrows capabilities.tools for this upstream: a call must pass both."""
    call_seconds: Seconds = 60.0
    """Seconds per call, including the wait for a connection (default 60). Progress extends it, ten times at most. A
    longer one raises an error in the script, and its outcome is unknown."""
    connect_seconds: Seconds = 60.0
    """Seconds to connect and list the tools (default 60). After that the upstream is down. Does not cover calls."""
    message_bytes: Annotated[int, Field(ge=65_536, le=256 * 1024 * 1024)] = 16 * 1024 * 1024
    """Bytes of one message from the upstream (default 16777216, 16 MiB). A longer one fails its call. On stdio and sse
    it ends the connection and all calls in flight."""
    start: Literal["eager", "lazy"] = "eager"
    """eager (the default) connects when the portal starts, lazy at the first call. A lazy upstream whose tools are not
    yet known is started once, to list them."""
    retries: Annotated[RetryRules, EMPTY_IS_DEFAULT] = RetryRules()
    """Which calls are retried after a transient failure."""
    elicitation: bool = True
    """Whether it may ask the person at the client (default true). Requests for secrets are refused."""
    sampling: SamplingRules | None = None
    """How much it may use the client's model. Default: not at all."""
    roots: Annotated[tuple[RootUri, ...], Strict(False), Field(max_length=100)] = ()
    """file:// URIs to answer when it asks for roots. Default: none."""
    handshake: bool = False
    """Whether to begin with the handshake of revisions before 2026-07-28 (default false). Servers that send requests,
    such as `ctx.elicit` of the Python SDK 2, FastMCP 4 and the TypeScript SDK 2, can ask only then."""


class StdioUpstream(UpstreamSection):
    """An MCP server that the portal starts as a child process, over stdin and stdout."""

    command: HostPath
    """The program to start: a name on PATH, or a path relative to this file's folder."""
    args: Annotated[tuple[Argument, ...], Strict(False)] = Field(default=(), repr=False)
    """The program's arguments, one per item."""
    env: Annotated[dict[Variable, Argument], EMPTY_IS_DEFAULT] = Field(default_factory=dict, repr=False)
    """Environment variables of the child. It gets only these, defaults.env, PATH, HOME, LANG and TMPDIR."""
    cwd: HostPath | None = None
    """The child's working directory, relative to this file's folder. Default: that folder."""
    idle_stop_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Seconds without a call after which the child is stopped. The next call starts it. Default: never."""


class HttpUpstream(UpstreamSection):
    """An MCP server at a URL, with url, headers, transport and oauth in place of the keys of a command."""

    url: Url = Field(repr=False)
    """The MCP endpoint, http:// or https://."""
    headers: Annotated[dict[HeaderName, Header], EMPTY_IS_DEFAULT] = Field(default_factory=dict, repr=False)
    """HTTP headers of every request, like Authorization."""
    transport: Literal["streamable-http", "sse"] = "streamable-http"
    """sse for a server that speaks only the older HTTP+SSE transport."""
    oauth: OAuthSettings | None = None
    """OAuth. `oauth: {}` and `mcp-code-portal login NAME` are enough for most. Default: none."""

    @property
    def is_per_caller(self) -> bool:
        """Whether people sign in at it."""
        return self.oauth is not None and self.oauth.per == "caller"

    @model_validator(mode="after")
    def _keeps_tokens_safe(self) -> Self:
        if self.oauth is None:
            return self
        if any(name.lower() == "authorization" for name in self.headers):
            hint = "Keep one of them: OAuth sets that header itself."
            raise refusal("has both oauth and an Authorization header", hint)
        if not is_safe_for_tokens(self.url):
            hint = "Use https://. http:// is allowed only on this machine, like http://127.0.0.1:8080/mcp."
            raise refusal("has oauth, but a url that is not https://", hint)
        return self


def _kind(value: Json) -> str | None:
    """The union tag of an upstream; None if it is not a mapping."""
    if isinstance(value, StdioUpstream) or (isinstance(value, dict) and "command" in value):
        return f"{TAG}command"
    return f"{TAG}url" if isinstance(value, dict | HttpUpstream) else None


def _with_kind(value: Json) -> Json:
    if isinstance(value, dict) and ("command" in value) is ("url" in value):
        message = f"needs either a command or a url, not both; it has {', '.join(map(repr, value))[:200] or 'nothing'}"
        hint = "`command` starts a program and uses its stdio. `url` connects to a running server."
        near = [known for key in value for known in get_close_matches(key, ("command", "url"), n=1)]
        misspelt = "command" not in value and near
        raise refusal(message, f"Did you mean {near[0]}? {hint}" if misspelt else hint)
    return value


Upstream: TypeAlias = Annotated[
    Annotated[StdioUpstream, Tag(f"{TAG}command")] | Annotated[HttpUpstream, Tag(f"{TAG}url")],
    Discriminator(
        _kind, custom_error_type=UNUSABLE, custom_error_message="must be a mapping with a command or a url"
    ),
    BeforeValidator(_with_kind),
]


class Defaults(Section):
    """Settings of every upstream that does not override them."""

    env: Annotated[dict[Variable, Argument], EMPTY_IS_DEFAULT] = Field(default_factory=dict, repr=False)
    """Environment variables of every child, like SSL_CERT_FILE and HTTPS_PROXY. An upstream's own env wins; an empty
    value is not passed. Default: none."""


class Capabilities(Section):
    """What every script may do."""

    tools: Annotated[ToolRules, EMPTY_IS_DEFAULT] = ToolRules()
    """Which tools scripts may call."""
    limits: Annotated[Limits, EMPTY_IS_DEFAULT] = Limits()
    """Limits of one run of a script."""
    flows: Annotated[tuple[FlowRule, ...], Strict(False), Field(max_length=1000)] = ()
    """Flows of data from one upstream to another that are refused. Default: none."""
    files: FileGrant | None = None
    """A folder for files of scripts. Default: none; scripts have no files."""
    network: NetworkGrant | None = None
    """Hosts that scripts may fetch from. Default: none; scripts have no network."""
    environment: Annotated[dict[ScriptVariable, Argument], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict, repr=False
    )
    """The variables in os.environ of every script, which the model can read, too: put a secret here only if it may know
    it. Default: none."""
    approvers: Annotated[tuple[Approver, ...], Strict(False), Field(max_length=1000)] = ()
    """The people who decide about waiting calls, in runs of their tenant: "claim:scope=approve", "profile:lead" or
    "token:ops". A terminal always may. Default: the caller who started the run; over HTTP without tokens only a
    terminal."""
    four_eyes: bool = False
    """Whether people may not decide about calls of their own runs, except at a terminal (default false)."""


class BoundToken(Section):
    """A bearer token of HTTP clients, and what its callers may do."""

    token: Token = Field(repr=False)
    """The token. Write ${NAME} and keep it in the environment."""
    name: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")] | None = None
    """Its name in capabilities.approvers, logs and lists of runs. Default: its number."""
    profile: ProfileName | None = None
    """The profile that narrows its callers' capabilities. Default: none."""
    tenant: TenantName | None = None
    """The tenant of its callers. Callers of one tenant share files (files.share: tenant). Default: none."""


Algorithm: TypeAlias = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
Scope: TypeAlias = Annotated[str, Field(pattern=r"^[!#-\[\]-~]{1,200}$")]


class Introspection(Section):
    """Asks the identity provider about each token, as RFC 7662 defines it: for tokens that are not JWTs."""

    client_id: ClientText
    """The portal's client_id at the provider."""
    client_secret: ClientText = Field(repr=False)
    """Its secret, as ${NAME}."""
    url: SafeUrl | None = None
    """The introspection endpoint. Default: the one in the issuer's metadata."""


class AuthSettings(Section):
    """Sign-in of HTTP clients: the portal accepts access tokens of an identity provider."""

    issuer: SafeUrl
    """The identity provider, exactly as in the `iss` of its tokens. Its metadata has the keys that verify them."""
    audience: Annotated[str, Field(min_length=1, max_length=2000)]
    """The audience that the `aud` of a token has to contain: the URL of the portal, like https://portal.example/mcp, or
    the provider's name for it."""
    url: SafeUrl | None = None
    """The URL at which clients reach the portal. Default: the audience, which then has to be a URL."""
    scopes: Annotated[tuple[Scope, ...], Strict(False), Field(max_length=50)] = ()
    """Scopes that each token must have. Default: none."""
    algorithms: Annotated[tuple[Algorithm, ...], Strict(False), Field(min_length=1)] = ("RS256", "ES256")
    """Algorithms with which tokens may be signed (default RS256 and ES256)."""
    leeway_seconds: Annotated[float, Field(ge=0, le=300)] = 30.0
    """Seconds by which the provider's clock may differ from this one (default 30)."""
    introspection: Introspection | None = None
    """How to check tokens that are not JWTs. Default: they are refused."""
    client_id: ClientText | None = None
    """The portal's own client_id at the issuer, for people who sign in at upstreams (oauth: {per: caller}).
    Its redirect URI is that of the portal with /oauth/sign-in/identity instead of /mcp. Default: none."""
    client_secret: ClientText | None = Field(default=None, repr=False)
    """Its secret, as ${NAME}. Default: none, for a public client."""
    token_endpoint_auth_method: Literal["client_secret_basic", "client_secret_post"] | None = None
    """How that secret is sent: in a header (basic) or in the form (post). Default: basic, if the issuer offers it."""
    send_resource: bool = True
    """Whether this client names the portal as the `resource` of its tokens (default true). false: for Entra ID."""

    @model_validator(mode="after")
    def _is_reachable_safely(self) -> Self:
        try:
            AnyHttpUrl(self.resource)
        except ValidationError:
            raise refusal(
                "has an audience that is not a URL", "Set url to the URL at which clients reach the portal."
            ) from None
        return self

    @property
    def resource(self) -> str:
        """The URL of the portal, as its protected resource metadata names it."""
        return self.url or self.audience

    @property
    def base_url(self) -> str:
        """The URL below which the portal has its other pages."""
        return self.resource.rstrip("/").removesuffix("/mcp")


class ClaimProfile(Section):
    """The profile of people whose claim has this value."""

    claim: Annotated[str, Field(min_length=1, max_length=500)]
    """The claim, like https://id.example/roles; "*" means all others."""
    value: str = ""
    """Its value, or one of its values."""
    profile: ProfileName
    """The profile of these people."""


def readings(fitting: str) -> list[tuple[str, str]]:
    """The possible meanings of "claim:value". Both parts may have colons; one before // is within a URL."""
    colons = (each.start() for each in re.finditer(":(?!//)", fitting))
    return [(fitting[:at], fitting[at + 1 :]) for at in colons if 0 < at < len(fitting) - 1]


class Tenants(Section):
    """The tenant and profile of a person who signed in, by the claims of the token.

    A claim is named as in the token, or by a path into it, like realm_access.roles.
    """

    claim: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """The claim with the tenant's name. A token without it is refused. Default: no tenants."""
    profiles: Annotated[
        Annotated[dict[str, ProfileName], Field(max_length=1000), Tag(f"{TAG}mapping")]
        | Annotated[tuple[ClaimProfile, ...], Strict(False), Field(max_length=1000), Tag(f"{TAG}list")],
        Discriminator(lambda value: f"{TAG}list" if isinstance(value, list | tuple) else f"{TAG}mapping"),
    ] = Field(default_factory=dict)
    """The profile by "claim:value", like {"groups:admins": admin, "*": reader}; or a list like [{claim: groups, value:
    "urn:x:admins", profile: admin}], where both may have colons. The first match counts; "*" is for all others. A token
    without a match is refused. Default: no profiles."""

    @property
    def entries(self) -> dict[str | int, ClaimProfile]:
        """The profiles in order, by key or index."""
        if not isinstance(self.profiles, dict):
            return dict(enumerate(self.profiles))
        return {
            key: ClaimProfile(claim=claim, value=value, profile=profile)
            for key, profile in self.profiles.items()
            for claim, value in (readings(key) or [(key, "")])[-1:]
        }


def _with_python(kernels: dict[KernelName, bool]) -> dict[KernelName, bool]:
    if kernels.get(PYTHON) is False:
        raise refusal("switches python off, which is always on", "Remove it, like in {javascript: true}.")
    return kernels


class ServerSettings(Section):
    """How the portal itself serves."""

    output_tokens: Annotated[int, Field(ge=100, le=10_000_000)] = 6000
    """Tokens (o200k_base) of one answer to the model (default 6000), and the most that a call's `max_tokens` can be.
    Longer values are shown as a preview. Does not cover images and other binary content."""
    structured: bool = False
    """Whether answers also have structuredContent, their whole shape, for programs (default false). Some clients show a
    model both."""
    start_seconds: Annotated[float, Field(ge=0, le=600)] = 10.0
    """Seconds, from the portal's start, that a script or a search waits for starting upstreams (default 10). Then it
    continues without them, with a notice."""
    drain_seconds: Annotated[float, Field(ge=0, le=3600)] = 3.0
    """Seconds that open HTTP responses get to end when the portal is stopped (default 3); event streams end at once.
    Then their connections are closed, and the scripts that they wait for are cancelled. Runs in the background, and
    those that wait, go on in another replica, or in the next portal."""
    check: Literal["strict", "warn", "off"] = "strict"
    """Effect of a type error. strict (the default): the script is refused; warn: a notice; off: no check."""
    repairs: bool = True
    """Whether invalid arguments are repaired if the meaning is certain (default true), like a number in a string.
    Each repair adds a notice. With false such calls are refused."""
    observe_results: bool = True
    """Whether the portal infers result types of tools without an outputSchema from their results (default true). It
    stores kinds, keys and nesting, never values."""
    observed_folder: HostPath | None = None
    """Where inferred types are stored, relative to this file. Default: mcp-code-portal/observed in $XDG_STATE_HOME."""
    token: Token | None = None
    """The bearer token that HTTP clients must send, as ${NAME}. Without it, tokens and auth the portal serves on
    loopback only."""
    tokens: Annotated[tuple[BoundToken, ...], Strict(False), Field(max_length=1000)] = Field(
        default=(), repr=False
    )
    """Further tokens that HTTP clients may send, each optionally with a profile. Default: none."""
    auth: AuthSettings | None = None
    """Sign-in of HTTP clients at an identity provider, besides or instead of token and tokens. Default: none."""
    allowed_hosts: Annotated[tuple[Host, ...], Strict(False)] = ()
    """Host headers to accept over HTTP besides those of loopback and of server.auth, like portal.example:8080."""
    allowed_origins: Annotated[tuple[Origin, ...], Strict(False)] = ()
    """Origin headers to accept over HTTP besides those of loopback, like https://app.example. Pages of loopback may use
    /mcp only if a token is required."""
    head_seconds: Seconds = 10.0
    """Seconds for the head of an HTTP request, and six times as many for its body (default 10). Then its connection is
    closed. Does not cover responses, and connections that are idle between requests."""
    connections: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """HTTP connections at once (default 1000), and at most half of the open files that the system allows. A further one
    takes the place of the oldest that waits for its client."""
    connections_per_address: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """HTTP connections of one address at once (default 256). Does not cover those of trusted_proxies: there, it is the
    number of requests at once of an address that they forward; more get 429."""
    trusted_proxies: Annotated[tuple[Network, ...], Strict(False), Field(max_length=1000)] = ()
    """Addresses and networks of reverse proxies and other replicas, like 10.0.0.0/8. Their X-Forwarded-For and
    X-Forwarded-Proto are believed. Default: none."""
    reload: Literal["ask", "watch", "signal"] = "ask"
    """When a change of this file, portal.env, portal.lock, middleware or the component takes effect. ask (the default):
    when a person accepts it with `mcp-code-portal reload`, or at SIGHUP. watch: at once, for files that no script
    reaches. signal is a former name of ask."""
    offers: Annotated[tuple[Literal["resources", "prompts"], ...], Strict(False), Field(max_length=2)] = ()
    """Offers of upstreams that the portal passes on, besides its tools: resources, prompts, both or none (default)."""
    progress_seconds: Seconds = 5.0
    """Seconds between two progress notifications of a running script, if the client requests them (default 5)."""
    workers: int | None = Field(default=None, ge=1, le=256)
    """Sandbox processes, and so scripts at once. Default: one per processor and at least 2; up to 8 per processor while
    scripts wait for slow calls. While several callers compete, a caller with less than an equal share gets more, up to
    twice as many, unless it is 1."""
    component: HostPath | None = None
    """A sandbox component from `mcp-code-portal bake`, relative to this file. Default: the built-in one."""
    kernels: Annotated[dict[KernelName, bool], AfterValidator(_with_python), EMPTY_IS_DEFAULT] = Field(
        default_factory=dict
    )
    """The languages of scripts besides Python, like {javascript: true}, which is TypeScript, too. Each has sandbox
    processes of its own. docs_search speaks that of a client's last script, at first the one named first. Default: only
    Python, which is always on."""
    queue: Annotated[int, Field(ge=0, le=100_000)] = 1000
    """Scripts that may wait for a sandbox process (default 1000); one of more than 64 KiB counts as several. The next
    one is refused with sandbox_busy. Does not cover runs in sessions."""
    queue_seconds: Seconds = 60.0
    """Seconds a script may wait for a sandbox process (default 60). Then it is refused with sandbox_busy."""
    sessions: Annotated[int, Field(ge=0, le=1000)] = 8
    """Sessions at once (default 8). A further one ends an idle session of the caller with the most. While those of
    others are busy, a caller with less than an equal share gets more, up to twice as many."""
    session_idle_seconds: Annotated[float, Field(gt=0, le=86_400)] = 900.0
    """Seconds a session is kept without a run (default 900). Then its variables are lost."""

    @property
    def switched_on(self) -> tuple[KernelName, ...]:
        """The kernels that are on, as written: the first is the one whose language docs_search speaks at first."""
        return (*(name for name, is_on in {**self.kernels, PYTHON: True}.items() if is_on),)

    @property
    def knows_callers(self) -> bool:
        """Whether HTTP clients have to say who they are."""
        return bool(self.token or self.tokens or self.auth)


STDERR: Final = "stderr"
STORE: Final = "store"
"""The place of an audit log that is not in a file."""


class AuditSettings(Section):
    """An audit log: JSON lines, each with the hash of the line before."""

    to: HostPath
    """stderr, a file relative to this file, or store: the Postgres database of runs.store, where all portals write one
    log. If writing fails, only readOnlyHint tools are called."""
    sync: bool = False
    """Whether each line of a file is flushed to disk, twice per call, to survive a power failure (default false)."""

    @property
    def is_file(self) -> bool:
        return self.to not in (STDERR, STORE)


class TelemetrySettings(Section):
    """OpenTelemetry. The OTEL_* variables of its SDK set sampling, batches and limits. Needs the extra telemetry."""

    otlp: Url | None = Field(default=None, repr=False)
    """The base URL of a collector that speaks OTLP over HTTP, like http://127.0.0.1:4318. Default: nothing is sent."""
    headers: Annotated[dict[HeaderName, Header], EMPTY_IS_DEFAULT] = Field(default_factory=dict, repr=False)
    """HTTP headers of every request to it. Write a reference, not the secret itself."""
    service_name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The service.name. Default: as $OTEL_SERVICE_NAME or $OTEL_RESOURCE_ATTRIBUTES say, else mcp-code-portal."""
    arguments: bool = False
    """Whether spans have the arguments and results of tools and calls, scripts among them (default false). Known
    secrets are masked."""
    metrics: bool = False
    """Whether the HTTP server shows numbers at /metrics, for Prometheus (default false)."""
    metrics_token: Token | None = Field(default=None, repr=False)
    """The bearer token for /metrics, as ${NAME}, which opens nothing else. Default: server.token."""

    @model_validator(mode="after")
    def _does_something_safely(self) -> Self:
        if self.otlp is None and not self.metrics:
            raise refusal("does nothing", "Set otlp to the URL of a collector, or metrics: true.")
        if self.otlp is not None and self.otlp.endswith(("/v1/traces", "/v1/metrics")):
            hint = "Write the base URL, like http://127.0.0.1:4318."
            raise refusal("has an otlp with a path that is added to it", hint)
        if self.otlp is not None and self.headers and not is_safe_for_tokens(self.otlp):
            hint = "Use https://. http:// is allowed only on this machine, or without headers."
            raise refusal("has headers, but an otlp that is not https://", hint)
        return self


RunEvent: TypeAlias = Literal[
    "run.waiting", "run.ok", "run.error", "run.cancelled", "run.expired", "run.stuck"
]


class Webhook(Section):
    """A URL that receives the events of runs, as POST requests by Standard Webhooks."""

    url: SafeUrl = Field(repr=False)
    """The URL of the receiver: https://, or http:// on this machine. Retried for a day."""
    secret: WebhookSecret = Field(repr=False)
    """The signing key, as ${NAME}: whsec_ and 24 to 64 bytes in base64, or any text of at least 16 characters."""
    events: Annotated[tuple[RunEvent, ...], Strict(False), Field(max_length=100)] = get_args(RunEvent)
    """Which events to send. Default: all."""


class RunsSettings(Section):
    """How runs are kept, so that they survive a restart and can wait for days."""

    store: HostPath | None = None
    """The SQLite file with runs, relative to this file, for the portals on this machine; or the URL of a Postgres
    database, postgres://user:password@host/name, for those on any number of machines. It holds arguments and results,
    so a workspace must not contain it. Default: a file in mcp-code-portal in $XDG_STATE_HOME."""
    key: Key | None = Field(default=None, repr=False)
    """The secret that encrypts arguments, results and scripts in the store, as ${NAME}: at least 16 characters. Does
    not cover names, times and states. A store keeps its key, or none: with another one the portal does not start on it.
    Default: no encryption; only you can read the file."""
    keep_days: Annotated[float, Field(gt=0, le=3650)] = 7.0
    """Days until an ended run and its results are deleted (default 7). Does not cover runs that wait."""
    max_age_days: Annotated[float, Field(gt=0, le=3650)] = 30.0
    """Days after its start that a run may continue, including all waits (default 30). Then it ends as expired. Does not
    cover how long its result is kept."""
    park_after_seconds: Annotated[float, Field(ge=0, le=3600)] = 2.0
    """Seconds that a run keeps its sandbox process while all of its calls wait for a person, a timer or an event
    (default 2), at least 0.1. Then it is parked: suspended, without a process. Does not cover waits for upstreams."""
    quota_mib: Annotated[int, Field(ge=1, le=1 << 30)] = 1024
    """MiB that one caller may keep in the store (default 1024): journals, answers and results, compressed. Beyond it
    new runs, calls that need a journal, and results are refused with quota_exceeded. Does not cover what its open runs
    still write."""
    trail: Literal["off", "calls", "full"] = "calls"
    """What is kept of each run, also of those that only read, in the store for keep_days, at most 100,000 runs (default
    calls). calls: the first line of its script, its client, sizes, and the names and times of at most 100 calls. full:
    also its script, arguments, results and answer, up to 1 MiB. off: nothing. Does not cover the journals of runs
    that wait or change something."""
    public_url: Url | None = None
    """The URL under which others reach this portal over HTTP, for portal.event_url. Give a variable in it a default:
    without one it counts as a secret and is masked. Default: that of the listener with --http; over stdio none, and
    events are refused."""
    ask_in: Literal["client", "console"] = "client"
    """Where a client asks its person about calls that wait (default client): in a form of the client, or on the page of
    the console, if the client opens pages (elicitation by URL) and this portal has a URL; else in a form, too."""
    webhooks: Annotated[tuple[Webhook, ...], Strict(False), Field(max_length=100)] = ()
    """URLs that are notified when a run waits or ends. Default: none."""

    @property
    def is_shared(self) -> bool:
        """Whether several machines use the store: it is a Postgres database."""
        return self.store is not None and self.store.startswith(("postgres://", "postgresql://"))

    @model_validator(mode="after")
    def _has_a_known_store(self) -> Self:
        if self.store is not None and "://" in self.store and not self.is_shared:
            hint = "Write postgres://user:password@host/name, or the path of a SQLite file."
            raise refusal("has a store with a scheme that is not postgres://", hint)
        return self


class ProfileTools(ToolRules):
    """Narrows capabilities.tools for a profile. Patterns work as there."""

    destructive: Literal["refuse"] | None = None
    """refuse: tools that declare themselves destructive are refused unless this allow or ask names them. Default:
    as in capabilities.tools."""


class Profile(Section):
    """Narrows capabilities for the callers bound to it. A missing key changes nothing."""

    tools: Annotated[ProfileTools, EMPTY_IS_DEFAULT] = ProfileTools()
    """Which tools remain."""
    limits: Annotated[Limits, EMPTY_IS_DEFAULT] = Limits()
    """Lower limits for one run. Default: as in capabilities.limits."""
    flows: Annotated[tuple[FlowRule, ...], Strict(False), Field(max_length=1000)] = ()
    """Further flow rules, in addition to capabilities.flows."""
    files: Literal["none", "read"] | None = None
    """none: no files; read: files are read-only. Default: as in capabilities.files."""
    network: Hosts | None = None
    """The hosts of capabilities.network that remain; [] for none. Default: all."""
    environment: Annotated[tuple[ScriptVariable, ...], Strict(False), Field(max_length=1000)] | None = None
    """Names of the variables of capabilities.environment that remain. Default: all."""


Fallbacks: TypeAlias = Annotated[tuple[FunctionName, ...], Strict(False), Field(min_length=1, max_length=20)]


class PortalManifest(Section):
    """portal.yaml, the manifest of mcp-code-portal. Everything in it is optional."""

    upstreams: Annotated[dict[UpstreamName, Upstream], EMPTY_IS_DEFAULT] = Field(default_factory=dict)
    """The MCP servers behind the portal. The key names the upstream; scripts see it as a Python identifier."""
    capabilities: Annotated[Capabilities, EMPTY_IS_DEFAULT] = Capabilities()
    """What every script may do. ${NAME} works only under environment."""
    profiles: Annotated[dict[ProfileName, Annotated[Profile, EMPTY_IS_DEFAULT]], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict
    )
    """Named sets of narrower capabilities. server.tokens, tenants.profiles or --profile binds a caller to one."""
    audit: AuditSettings | None = None
    """Where to log runs and calls. Default: nowhere."""
    server: Annotated[ServerSettings, EMPTY_IS_DEFAULT] = ServerSettings()
    """How the portal itself serves."""
    tenants: Tenants | None = None
    """Tenants and profiles of people who sign in (server.auth). Default: everyone has the same capabilities."""
    runs: Annotated[RunsSettings, EMPTY_IS_DEFAULT] = RunsSettings()
    """How runs are kept, so that they survive a restart and can wait for days."""
    telemetry: TelemetrySettings | None = None
    """OpenTelemetry for operators. Default: none."""
    middleware: Annotated[tuple[MiddlewareName, ...], Strict(False), Field(max_length=20)] = ()
    """Your own Python around every call of a script, outermost first: package.module:name, an async function. Modules
    may be beside this file. They run with the portal's rights. Default: none."""
    fallback: Annotated[dict[FunctionName, Fallbacks], EMPTY_IS_DEFAULT] = Field(default_factory=dict)
    """Read-only functions that answer for another one while its upstream is down, in this order, like
    {search.web: [search2.web]}. They take the same arguments. Default: none."""
    defaults: Annotated[Defaults, EMPTY_IS_DEFAULT] = Defaults()
    """Settings of every upstream that does not override them."""


FILE = "portal.schema.json"


def schema_text() -> str:
    """The schema file that ships with the package."""
    return files("manifests").joinpath(FILE).read_text(encoding="utf-8")


def generated_schema() -> str:
    # Pydantic can read the docstrings of fields itself (use_attribute_docstrings), but that costs 25 ms at each start.
    from pydantic._internal._docs_extraction import extract_docstrings_from_cls  # noqa: PLC2701

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
                if isinstance(known.get("default"), dict):  # editors would insert the whole section
                    del known["default"]
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "title": "portal.yaml"}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _models(base: type[Section]) -> Iterator[type[Section]]:
    yield base
    for each in base.__subclasses__():
        yield from _models(each)


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(generated_schema(), encoding="utf-8")

"""What portal.yaml may say. Parsed once by `manifests.loader`; everybody else trusts these types.

The descriptions reach operators: they are in the JSON Schema, from which editors complete and explain the
file.
"""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Strict, Tag, model_validator
from pydantic_core import PydanticCustomError

from manifests.constraints import (
    UNUSABLE,
    Argument,
    Header,
    HeaderName,
    Host,
    HostPath,
    Origin,
    ProfileName,
    RootUri,
    ScriptVariable,
    Seconds,
    TenantName,
    Token,
    Url,
    Variable,
    is_safe_for_tokens,
)
from manifests.flows import FlowRule
from manifests.grants import FileGrant, NetworkGrant
from manifests.json_value import Json
from manifests.oauth import OAuthSettings
from manifests.retries import RetryRules
from manifests.section import EMPTY_IS_DEFAULT, Section
from manifests.tool_rules import ToolRules


class SamplingRules(Section):
    """How far an upstream may use the model of the client whose calls it works on."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1_000,
        description=(
            "Tokens that it may have sampled for one script (default 1000): what it asks for beyond is lowered to what "
            "is left, and then refused."
        ),
    )
    depth: Annotated[int, Field(ge=1, le=10)] = Field(
        default=1,
        description=(
            "Requests of one client that may be under way within one another (default 1, so none within another): a "
            "model that is asked may run a script in which the upstream asks again."
        ),
    )


class UpstreamSection(Section):
    """What every upstream may say, however it is reached."""

    tools: Annotated[ToolRules, EMPTY_IS_DEFAULT] = Field(
        default=ToolRules(),
        description="Narrows capabilities.tools for this upstream: a call must pass both.",
    )
    call_seconds: Seconds = Field(
        default=60.0,
        description=(
            "Seconds one call may take (default 60). A longer one ends in an error in the script, and its"
            " outcome is unknown. Does not cover connecting."
        ),
    )
    connect_seconds: Seconds = Field(
        default=60.0,
        description=(
            "Seconds to start or connect and to list the tools (default 60). After that the upstream "
            "counts as down. Does not cover calls."
        ),
    )
    start: Literal["eager", "lazy"] = Field(
        default="eager",
        description=(
            "eager (the default) connects when the portal starts, lazy when a script first calls. What a lazy upstream "
            "offers is known from when it was last listed; one that never was is started once, to be listed."
        ),
    )
    retries: Annotated[RetryRules, EMPTY_IS_DEFAULT] = Field(
        default=RetryRules(), description="Which calls are sent again after a failure that may pass."
    )
    elicitation: bool = Field(
        default=True,
        description=(
            "Whether it may ask the person at a client that supports that (default true). What looks like a secret is "
            "never asked for."
        ),
    )
    sampling: SamplingRules | None = Field(
        default=None,
        description="How far it may use the client's model. Default: not at all.",
    )
    roots: Annotated[tuple[RootUri, ...], Strict(False), Field(max_length=100)] = Field(
        default=(),
        description="file:// URIs that it is told when it asks for roots. Default: it is told of none.",
    )


class StdioUpstream(UpstreamSection):
    """An MCP server that the portal starts as a child process and speaks to over its stdin and stdout."""

    command: HostPath = Field(
        description="The program to start: a name found on PATH, or a path relative to this file's folder.",
    )
    args: Annotated[tuple[Argument, ...], Strict(False)] = Field(
        default=(),
        repr=False,
        description="The program's arguments, one per item.",
    )
    env: Annotated[dict[Variable, Argument], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict,
        repr=False,
        description="Environment variables of the child: these, PATH, HOME, LANG and TMPDIR; no others.",
    )
    cwd: HostPath | None = Field(
        default=None,
        description="The child's working directory, relative to this file's folder. Default: that folder.",
    )
    idle_stop_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = Field(
        default=None,
        description=(
            "Seconds without a call after which the child is stopped, to be started again by the next call. Default: "
            "it is never stopped. Whatever the child remembers is lost."
        ),
    )


class HttpUpstream(UpstreamSection):
    """An MCP server that is reached by URL."""

    url: Url = Field(repr=False, description="The MCP endpoint, http:// or https://.")
    headers: Annotated[dict[HeaderName, Header], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict,
        repr=False,
        description="HTTP headers of every request, like Authorization.",
    )
    transport: Literal["streamable-http", "sse"] = Field(
        default="streamable-http",
        description="sse for a server that speaks only the older HTTP+SSE transport.",
    )
    oauth: OAuthSettings | None = Field(
        default=None,
        description="OAuth; `oauth: {}` and `mcp-code-portal login NAME` are enough for most. Default: none.",
    )

    @model_validator(mode="after")
    def _keeps_tokens_safe(self) -> Self:
        if self.oauth is None:
            return self
        if any(name.lower() == "authorization" for name in self.headers):
            hint = "Keep one of them: OAuth writes that header itself."
            raise PydanticCustomError(UNUSABLE, "has oauth and a header Authorization", {"hint": hint})
        if not is_safe_for_tokens(self.url):
            hint = "Use https://; http:// only on this machine, like http://127.0.0.1:8080/mcp."
            raise PydanticCustomError(UNUSABLE, "has oauth, but a url that is not https://", {"hint": hint})
        return self


def _kind(value: Json) -> str | None:
    """Which of the two an upstream is; None if it is neither, or tries to be both."""
    if isinstance(value, StdioUpstream | HttpUpstream):
        return "command" if isinstance(value, StdioUpstream) else "url"
    kinds = [key for key in ("command", "url") if isinstance(value, dict) and key in value]
    return kinds[0] if len(kinds) == 1 else None


UPSTREAM_KIND = "upstream_kind"
"""The type of the error for an upstream that has neither `command` nor `url`, or both."""

Upstream: TypeAlias = Annotated[
    Annotated[StdioUpstream, Tag("command")] | Annotated[HttpUpstream, Tag("url")],
    Discriminator(_kind, custom_error_type=UPSTREAM_KIND, custom_error_message="needs command or url"),
]


class Limits(Section):
    """What one run of a script may use. All of it is enforced outside the sandbox."""

    wall_seconds: Seconds = Field(
        default=60.0,
        description=(
            "Seconds a run may take by the clock (default 60). A longer run is stopped and answers with "
            "its ledger. Covers waiting for upstreams; does not cover waiting for a free worker or "
            "checking the script."
        ),
    )
    cpu_seconds: Seconds = Field(
        default=10.0,
        description=(
            "Seconds of computing a run may do (default 10). More stops it. Does not cover waiting for calls."
        ),
    )
    memory_mib: Annotated[int, Field(ge=32, le=1024)] = Field(
        default=256,
        description=(
            "MiB of memory a script may fill, Python itself included (default 256). Asking for more "
            "raises MemoryError in the script or stops it. Does not cover the portal's own memory."
        ),
    )
    tool_calls: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=200,
        description=(
            "Calls one run may make (default 200). The next one is refused; the script may go on without."
            " Counts calls that fail or are refused later, too."
        ),
    )
    parallel_calls: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=64,
        description=(
            "Calls of one run that may be under way at once (default 64). Others wait their turn; none is"
            " refused. Does not cover calls of other runs."
        ),
    )
    argument_bytes: Annotated[int, Field(ge=2, le=64 * 1024 * 1024)] = Field(
        default=1024 * 1024,
        description=(
            "Bytes of the arguments of one call, as JSON in UTF-8 (default 1048576, 1 MiB). A call with "
            "more is refused and not sent. Each value in them counts at least 8. All calls of a run that wait or are "
            "under way may hold 32 times as much."
        ),
    )
    outcome_bytes: Annotated[int, Field(ge=2, le=256 * 1024 * 1024)] = Field(
        default=10 * 1024 * 1024,
        description=(
            "Bytes of what one call returns, as JSON in UTF-8 (default 10485760, 10 MiB). More is refused"
            " with an error in the script, not cut. The upstream has acted by then."
        ),
    )
    result_bytes: Annotated[int, Field(ge=2, le=256 * 1024 * 1024)] = Field(
        default=10 * 1024 * 1024,
        description=(
            "Bytes of a script's value and of what it emits, as JSON in UTF-8 (default 10485760, 10 MiB)."
            " Each value in it counts at least 32. More ends the run with an error. What the model sees of it is "
            "bound by server.output_tokens."
        ),
    )
    stdout_bytes: Annotated[int, Field(ge=0, le=64 * 1024 * 1024)] = Field(
        default=256 * 1024,
        description=(
            "Bytes of what a script prints, in UTF-8 (default 262144, 256 KiB). The rest is dropped, and "
            "the answer says so. Printing more never stops a run."
        ),
    )


class Capabilities(Section):
    """What every script may do."""

    tools: Annotated[ToolRules, EMPTY_IS_DEFAULT] = Field(
        default=ToolRules(), description="Which tools scripts may call."
    )
    limits: Annotated[Limits, EMPTY_IS_DEFAULT] = Field(
        default=Limits(), description="What one run of a script may use."
    )
    flows: Annotated[tuple[FlowRule, ...], Strict(False), Field(max_length=1000)] = Field(
        default=(), description="Where what came from one upstream may not go. Default: no such rule."
    )
    files: FileGrant | None = Field(
        default=None,
        description="A folder in which scripts have files. Default: none, and no files at all.",
    )
    network: NetworkGrant | None = Field(
        default=None,
        description="Hosts that scripts may fetch from. Default: none, and no network at all.",
    )
    environment: Annotated[dict[ScriptVariable, Argument], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict,
        repr=False,
        description=(
            "Environment variables that every script sees in os.environ: these and no others. Default: none. "
            "Whatever is written here, every script, and with it the model, can read."
        ),
    )


class BoundToken(Section):
    """A bearer token of HTTP clients, and what its bearers may do."""

    token: Token = Field(repr=False, description="The token. Write ${NAME} and keep it in the environment.")
    profile: ProfileName | None = Field(
        default=None, description="The profile that narrows what its bearers may do. Default: none does."
    )
    tenant: TenantName | None = Field(
        default=None,
        description=(
            "Whose token it is. Tokens of one tenant have files together where capabilities.files has share: tenant, "
            "and need one then. Default: nobody's in particular."
        ),
    )


class ServerSettings(Section):
    """How the portal itself serves."""

    output_tokens: Annotated[int, Field(ge=100, le=10_000_000)] = Field(
        default=6000,
        description=(
            "Tokens (o200k_base) of one answer to the model (default 6000). A longer one is cut by its "
            "structure and says what was left out. Does not cover images and other binary content."
        ),
    )
    start_seconds: Annotated[float, Field(ge=0, le=600)] = Field(
        default=10.0,
        description=(
            "Seconds that upstreams which are still starting are waited for (default 10): by a script for "
            "those that it uses, by a search for all, counted from the portal's start. After that it goes "
            "on without them and says so. Starting itself goes on up to connect_seconds."
        ),
    )
    check: Literal["strict", "warn", "off"] = Field(
        default="strict",
        description=(
            "What the type check before a run may do: refuse the script (strict, the default), add "
            "notices (warn), or nothing (off)."
        ),
    )
    repairs: bool = Field(
        default=True,
        description=(
            "Whether arguments that do not fit are repaired where it is certain what was meant (default true): JSON "
            "in a text where an object or a list is wanted, a number as a text and the reverse, a single item for a "
            "list, arguments nested one level too deep or too shallow. Each repair is told in a notice. With false "
            "such calls are refused."
        ),
    )
    observe_results: bool = Field(
        default=True,
        description=(
            "Whether the portal learns what results look like of tools that declare nothing about theirs (default "
            "true): kinds, keys and nesting, never values. Stubs then show it, marked as observed."
        ),
    )
    observed_folder: HostPath | None = Field(
        default=None,
        description=(
            "The folder in which what was learnt is kept, relative to this file's folder. Default: "
            "mcp-code-portal/observed in $XDG_STATE_HOME or ~/.local/state."
        ),
    )
    token: Token | None = Field(
        default=None,
        description=(
            "The bearer token HTTP clients must send. Without one the portal serves on loopback only. "
            "Write ${NAME} and keep the token itself in the environment."
        ),
    )
    tokens: Annotated[tuple[BoundToken, ...], Strict(False), Field(max_length=1000)] = Field(
        default=(),
        repr=False,
        description="More tokens that HTTP clients may send, each perhaps bound to a profile. Default: none.",
    )
    allowed_hosts: Annotated[tuple[Host, ...], Strict(False)] = Field(
        default=(),
        description="Host headers to accept over HTTP beside those of loopback, like portal.example:8080.",
    )
    allowed_origins: Annotated[tuple[Origin, ...], Strict(False)] = Field(
        default=(),
        description="Origin headers to accept over HTTP, like https://app.example. Default: loopback only.",
    )
    offers: Annotated[tuple[Literal["resources", "prompts"], ...], Strict(False), Field(max_length=2)] = (
        Field(
            default=(),
            description=(
                "What of its upstreams the portal offers to clients itself, beside the two tools: resources, prompts, "
                "both or none (the default). They are named after their upstreams, and the rules for scripts hold."
            ),
        )
    )
    progress_seconds: Seconds = Field(
        default=5.0,
        description=(
            "Seconds between two notices of progress to a client that wants them (default 5), which keep it from "
            "giving up while a script runs. What upstreams say of their progress is passed on at once."
        ),
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description=(
            "Sandbox processes, so scripts that run at once. Default: one per processor and at least 2, more "
            "while scripts wait for slow calls, up to 8 per processor."
        ),
    )
    component: HostPath | None = Field(
        default=None,
        description=(
            "The sandbox's component, relative to this file's folder: one that `mcp-code-portal bake` made, with "
            "more packages inside. Default: the portal's own."
        ),
    )
    queue: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=1000,
        description=(
            "Scripts that may wait for a sandbox process (default 1000); one of more than 64 KiB takes the place of "
            "several. One more is refused at once, as "
            "sandbox_busy. Callers take turns, so that one with many waiting does not hold up the others. Does not "
            "cover runs in sessions, which have processes of their own."
        ),
    )
    queue_seconds: Seconds = Field(
        default=60.0,
        description=(
            "Seconds a script may wait for a sandbox process (default 60). Then it is refused, as sandbox_busy; "
            "nothing of it has run. Does not count towards wall_seconds."
        ),
    )
    sessions: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=8,
        description=(
            "Sessions kept at once (default 8). One more ends the session that was idle longest. Runs "
            "without a session do not count."
        ),
    )
    session_idle_seconds: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=900.0,
        description=(
            "Seconds a session is kept without a run (default 900). Then its variables are gone. A run in"
            " progress does not count as idle."
        ),
    )

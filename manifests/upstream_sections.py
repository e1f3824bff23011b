"""What portal.yaml says of one upstream. The descriptions reach operators, as those in `manifests.models` do."""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Strict, Tag, model_validator

from manifests.constraints import (
    Argument,
    Header,
    HeaderName,
    HostPath,
    RootUri,
    Seconds,
    Url,
    Variable,
    is_safe_for_tokens,
    refusal,
)
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
            "Scripts of one client that may wait for its samples at once (default 1): a model that is asked may run a "
            "script in which the upstream asks again, and nothing says which script runs within another."
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
            " outcome is unknown. Waiting for a connection counts, too; a call that was never sent did nothing."
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
            raise refusal("has oauth and a header Authorization", hint)
        if not is_safe_for_tokens(self.url):
            hint = "Use https://; http:// only on this machine, like http://127.0.0.1:8080/mcp."
            raise refusal("has oauth, but a url that is not https://", hint)
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

"""What portal.yaml may say. Parsed once by `manifests.loader`; everybody else trusts these types.

What stands below a field reaches operators: it is in the JSON Schema, from which editors complete and explain the file.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, Strict

from manifests.constraints import (
    EMPTY_IS_DEFAULT,
    Argument,
    Host,
    HostPath,
    Origin,
    ProfileName,
    ScriptVariable,
    Seconds,
    Section,
    TenantName,
    Token,
    UpstreamName,
)
from manifests.grants import FileGrant, FlowRule, Hosts, Limits, NetworkGrant, ToolRules
from manifests.json_value import Json
from manifests.upstream_sections import Upstream


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


NULL = {"type": "null"}
REFERENCE = {"type": "string", "pattern": r"\$\{"}


def schema_text() -> str:
    """The schema as it ships."""
    return files("manifests").joinpath(FILE).read_text(encoding="utf-8")


def generated_schema() -> str:
    """The schema as the models have it now."""
    # Pydantic reads what stands below fields itself if a model asks for it, but then at each start, in 25 ms.
    from pydantic._internal._docs_extraction import extract_docstrings_from_cls

    schema = PortalManifest.model_json_schema(ref_template="#/definitions/{model}")
    definitions = schema.pop("$defs")
    for model in _sections_of(PortalManifest):
        properties = (schema if model is PortalManifest else definitions[model.__name__])["properties"]
        for base in (each for each in reversed(model.__mro__) if issubclass(each, Section)):
            for key, text in extract_docstrings_from_cls(base, use_inspect=True).items():
                properties[model.model_fields[key].alias or key]["description"] = " ".join(text.split())
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_section(schema),
        "title": "portal.yaml",
        "definitions": {name: _section(definition) for name, definition in sorted(definitions.items())},
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _sections_of(annotation: object) -> set[type[Section]]:
    """Every section that a type is made of, at any depth."""
    found = set().union(*map(_sections_of, get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, Section):
        found |= {annotation}.union(
            *(_sections_of(each.annotation) for each in annotation.model_fields.values())
        )
    return found


def _section(schema: Json) -> Json:
    """One model's schema, in the words of draft-07 and of the loader."""
    properties = {key: _property(value) for key, value in schema["properties"].items()}
    return {**_plain(schema), "properties": properties}


def _property(schema: Json) -> Json:
    schema = _plain(schema)
    if "enum" in schema:
        # A reference may stand for one of the words.
        return {**_described(schema), "anyOf": [{"enum": schema["enum"]}, REFERENCE]}
    if "patternProperties" in schema:
        [(pattern, value)] = schema["patternProperties"].items()
        names = {**schema.get("propertyNames", {}), "pattern": pattern}
        mapping = {"type": "object", "propertyNames": names, "additionalProperties": value}
        return {**_described(schema), "anyOf": [mapping, NULL]}
    if "$ref" in schema:
        # Wrapped, because draft-07 sees nothing beside a $ref. Null: an empty section keeps its defaults.
        return {**_described(schema, "description"), "anyOf": [{"$ref": schema["$ref"]}, NULL]}
    return schema


def _plain(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if key != "title"}


def _described(schema: Json, *keys: str) -> Json:
    return {key: schema[key] for key in keys or ("description", "default") if key in schema}


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(generated_schema(), encoding="utf-8")

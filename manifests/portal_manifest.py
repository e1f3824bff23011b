"""The whole of portal.yaml."""

from typing import Annotated

from pydantic import Field

from manifests.audit_settings import AuditSettings
from manifests.constraints import ProfileName, UpstreamName
from manifests.models import Capabilities, ServerSettings
from manifests.profiles import Profile
from manifests.section import EMPTY_IS_DEFAULT, Section
from manifests.upstream_sections import Upstream


class PortalManifest(Section):
    """portal.yaml, the manifest of mcp-code-portal. Everything in it is optional."""

    upstreams: Annotated[dict[UpstreamName, Upstream], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict,
        description=(
            "The MCP servers behind the portal. The key names the upstream; scripts see it as a Python name."
        ),
    )
    capabilities: Annotated[Capabilities, EMPTY_IS_DEFAULT] = Field(
        default=Capabilities(),
        description="What every script may do. ${NAME} has a meaning only in environment.",
    )
    profiles: Annotated[dict[ProfileName, Annotated[Profile, EMPTY_IS_DEFAULT]], EMPTY_IS_DEFAULT] = Field(
        default_factory=dict,
        description=(
            "Named sets of narrower capabilities. A caller is bound to one by server.tokens or by --profile."
        ),
    )
    audit: AuditSettings | None = Field(
        default=None,
        description="Where to write down what was run and called. Default: nowhere.",
    )
    server: Annotated[ServerSettings, EMPTY_IS_DEFAULT] = Field(
        default=ServerSettings(),
        description="How the portal itself serves.",
    )

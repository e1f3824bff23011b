"""Named sets of capabilities that narrow those of every script."""

from typing import Annotated, Literal

from pydantic import Field, Strict

from manifests.constraints import ScriptVariable
from manifests.flows import FlowRule
from manifests.grants import Hosts
from manifests.limits import Limits
from manifests.section import EMPTY_IS_DEFAULT, Section
from manifests.tool_rules import AllowItem, CallBudget, DenyItem


class ProfileTools(Section):
    """Which of the tools that capabilities.tools grants the profile leaves. Patterns mean what they mean there."""

    allow: Annotated[tuple[AllowItem, ...], Strict(False), Field(max_length=1000)] = Field(
        default=("*",),
        description="Tools that are left, as in capabilities.tools.allow. Default: all of them.",
    )
    deny: Annotated[tuple[DenyItem, ...], Strict(False), Field(max_length=1000)] = Field(
        default=(), description="Tools that are taken away, whatever allow says. Default: none."
    )
    destructive: Literal["refuse"] | None = Field(
        default=None,
        description=(
            "refuse: tools that declare themselves destructive are taken away unless a pattern in this allow names "
            "them. Default: as in capabilities.tools."
        ),
    )
    budgets: Annotated[tuple[CallBudget, ...], Strict(False), Field(max_length=1000)] = Field(
        default=(), description="How often tools may be called, beside capabilities.tools.budgets."
    )


class Profile(Section):
    """What is left of capabilities for the callers bound to it. Everything here narrows; what is not said stays."""

    tools: Annotated[ProfileTools, EMPTY_IS_DEFAULT] = Field(
        default=ProfileTools(), description="Which tools are left."
    )
    limits: Annotated[Limits, EMPTY_IS_DEFAULT] = Field(
        default=Limits(),
        description="Lower limits for one run. What is not said here is as in capabilities.limits.",
    )
    flows: Annotated[tuple[FlowRule, ...], Strict(False), Field(max_length=1000)] = Field(
        default=(), description="Where what came from one upstream may not go, beside capabilities.flows."
    )
    files: Literal["none", "read"] | None = Field(
        default=None,
        description="none: no files; read: what all scripts share is read only. Default: as in capabilities.files.",
    )
    network: Hosts | None = Field(
        default=None,
        description="Those hosts of capabilities.network that are left; [] for none of them. Default: all of them.",
    )
    environment: Annotated[tuple[ScriptVariable, ...], Strict(False), Field(max_length=1000)] | None = Field(
        default=None,
        description="Names of the variables of capabilities.environment that are left. Default: all of them.",
    )

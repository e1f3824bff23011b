"""Which calls of an upstream the portal may send again by itself; and the pure decision about one of them."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from manifests.constraints import Patterns
from manifests.hints import Hints
from manifests.json_value import Json
from manifests.section import Section
from manifests.tool_names import Glob, ToolNames


class RetryRules(Section):
    """Which calls are sent again after a failure that may pass.

    A tool that declares `readOnlyHint` or `idempotentHint` may be repeated; another one only if `allow` has it.
    A pattern is compared with the tool's name, the function's name, upstream.tool and namespace.function, one of deny
    with the name that the function has where no other tool takes it, too; deny wins.
    """

    attempts: Annotated[int, Field(ge=1, le=10)] = Field(
        default=3,
        description=(
            "Times a call that is safe to repeat is sent at most, within call_seconds (default 3); 1 repeats none. "
            "Repeats are at most a fifth of an upstream's calls, and three. Does not cover a call that never left "
            "the portal, which is sent once more whatever it does."
        ),
    )
    allow: Patterns = Field(
        default=(),
        description=(
            "Tools that may be repeated although they declare neither readOnlyHint nor idempotentHint. Default: none."
        ),
    )
    deny: Patterns = Field(
        default=(), description="Tools that are never repeated, whatever they declare. Default: none."
    )


def may_repeat(rules: RetryRules, names: ToolNames, annotations: Mapping[str, Json]) -> bool:
    """Whether a second call of the tool does no more than the first, as far as it and the operator say.

    One that declares that it destroys does not only read, whatever else it declares.

    Source: MCP 2025-11-25, schema#toolannotations: `idempotentHint` means something for tools that are not read-only.
    """
    if rules.attempts == 1 or any(Glob.of(pattern).restricts(names) for pattern in rules.deny):
        return False
    declares = Hints.of(annotations).readonly or annotations.get("idempotentHint") is True
    return declares or any(Glob.of(pattern).fits(names.granting) for pattern in rules.allow)

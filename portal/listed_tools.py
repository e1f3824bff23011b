"""The tools of an upstream as the manifest's rules see them."""

from manifests.names import function_names
from manifests.rule_slips import ListedTool
from manifests.tool_rules import Hints
from portal.passthrough.resources import LISTED
from upstreams.recorded_tool import RecordedTool
from upstreams.upstream import Upstream


def listed_tools(upstream: Upstream) -> list[ListedTool]:
    """Those that it lists now, whatever is granted, and the ways to read what else it offers."""
    names = function_names([tool.name for tool in upstream.tools])
    return [
        ListedTool(tool.name, names[tool.name], Hints.of(tool.annotations), _arguments(tool))
        for tool in upstream.tools
    ] + LISTED


def _arguments(tool: RecordedTool) -> frozenset[str] | None:
    properties = tool.input_schema.get("properties")
    return frozenset(properties) if isinstance(properties, dict) and properties else None

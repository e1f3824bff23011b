"""What scripts get of one upstream's tools."""

from collections.abc import Mapping
from dataclasses import dataclass

from manifests.decision import Decision
from manifests.names import function_names
from manifests.tool_rules import Hints
from portal.authority import Authority
from portal.library.namespace import LibrarySource
from portal.observed.shape import UNSEEN
from portal.observed.shape_store import Observed
from upstreams.recorded_tool import RecordedTool
from upstreams.upstream import Upstream


@dataclass(frozen=True)
class Offer:
    """Of the tools that the upstream lists, those that are shown, and the decisions about all that are not granted.

    `source` is None if none is shown; `denied` is by qualified name.
    """

    tools: tuple[RecordedTool, ...]
    summary: str
    observed: Mapping[str, Observed]
    source: LibrarySource | None
    denied: Mapping[str, Decision]

    def is_of(self, authority: Authority, upstream: Upstream, observed: Mapping[str, Observed]) -> bool:
        """Whether it is of what the upstream lists, and what is known of its results, now."""
        is_same = self.tools is upstream.tools and self.summary == authority.pins.summary(upstream)
        return is_same and self.observed == observed


def make_offer(authority: Authority, upstream: Upstream, observed: Mapping[str, Observed]) -> Offer:
    namespace = authority.manifest.namespaces[upstream.name]
    tools, summary = upstream.tools, authority.pins.summary(upstream)
    names = function_names(
        [tool.name for tool in tools]
    )  # of all, so that no name depends on what is granted
    shown: list[RecordedTool] = []
    denied: dict[str, Decision] = {}
    refusals: dict[str, str] = {}
    for tool in tools:
        name = names[tool.name]
        decision = authority.about_listed(upstream.name, tools, tool.name, name, Hints.of(tool.annotations))
        if decision.granted or decision.is_shown:
            shown.append(tool)
        if not decision.granted:
            denied[f"{namespace}.{name}"] = decision
            refusals[tool.name] = f"{decision.rule}. {decision.grant}"
    if not shown:
        return Offer(tools, summary, observed, None, denied)
    known = {tool.name: observed[tool.name] for tool in shown if _is_known(tool, observed)}
    schemas = {name: each.schema for name, each in known.items() if each.shape != UNSEEN}
    mismatches = {name: each.mismatch for name, each in known.items() if each.mismatch}
    source = LibrarySource(upstream.name, namespace, summary, shown, names, schemas, refusals, mismatches)
    return Offer(tools, summary, observed, source, denied)


def _is_known(tool: RecordedTool, observed: Mapping[str, Observed]) -> bool:
    known = observed.get(tool.name)
    return known is not None and known.definition == tool.digest

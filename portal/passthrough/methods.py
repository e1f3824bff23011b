"""The ways to read what an upstream offers besides tools, as the manifest's rules see them.

A rule means them by the method's name, as it means a tool: `files.resources/read`, `prompts/*`. They only read.
"""

from typing import Final, Literal, TypeAlias

from manifests.rule_slips import ListedTool
from manifests.tool_rules import Hints

Method: TypeAlias = Literal["resources/list", "resources/read", "prompts/list", "prompts/get"]

HINTS: Final = Hints(readonly=True, is_silent=False)

METHODS: Final[tuple[Method, ...]] = ("resources/list", "resources/read", "prompts/list", "prompts/get")

LISTED: Final = [ListedTool(method, method, HINTS, None) for method in METHODS]
"""They take other arguments than tools do: no condition on arguments is a slip for their sake."""

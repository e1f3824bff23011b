"""The requests for resources and prompts, which rules match like tools."""

from typing import Final, Literal, TypeAlias

from manifests.decision import ListedTool
from manifests.grants import Hints

Method: TypeAlias = Literal["resources/list", "resources/read", "prompts/list", "prompts/get"]

METHODS: Final[tuple[Method, ...]] = ("resources/list", "resources/read", "prompts/list", "prompts/get")

HINTS: Final = Hints(readonly=True, is_silent=False)
"""All methods only read."""

LISTED: Final = [ListedTool(method, method, HINTS, None) for method in METHODS]
"""Their arguments are unknown here, so that a condition on arguments is never reported as a mistake."""

"""The module `portal` that scripts import."""

import types
from collections.abc import Mapping, Sequence

from sandbox_runtime.guest.border import Border
from sandbox_runtime.guest.calls import Calls
from sandbox_runtime.guest.fetching import Fetching, Response
from sandbox_runtime.guest.readings import Readings
from sandbox_runtime.guest.searching import Searching
from sandbox_runtime.guest.tool_error import ToolError
from sandbox_runtime.guest.values import encode_value

_MAX_NOTICES = 10


class ResultLimitError(Exception):
    """The value and the emitted blocks together are larger than the run may return."""

    __module__ = "portal"

    def __init__(self, size: int) -> None:
        super().__init__(f"the result is {size:,} bytes, more than this run may return")
        self.size = size


class PortalModule(types.ModuleType):
    """`emit`, `fetch`, `search`, `describe`, what upstreams offer besides functions, and the exception calls raise."""

    def __init__(self, border: Border, calls: Calls) -> None:
        super().__init__("portal", "What a script can do besides calling upstream functions.")
        self.ToolError = ToolError
        self.Response = Response
        self.fetch = Fetching(calls).fetch
        searching = Searching(calls)
        self.search, self.describe = searching.search, searching.describe
        readings = Readings(calls)
        self.resources, self.read_resource = readings.resources, readings.read_resource
        self.prompts, self.get_prompt = readings.prompts, readings.get_prompt
        self.__all__ = [
            "Response",
            "ToolError",
            "describe",
            "emit",
            "fetch",
            "get_prompt",
            "prompts",
            "read_resource",
            "resources",
            "search",
        ]
        self.__dict__["__border"] = border
        self.begin(0)

    def begin(self, result_bytes: int) -> None:
        self.__dict__["__left"] = result_bytes
        self.__dict__["__used"] = 0
        self.__dict__["__notices"] = []

    def charge(self, size: int) -> None:
        """Count bytes of the answer.

        Raises:
            ResultLimitError: There are too many; the host would refuse them.
        """
        hidden = self.__dict__
        if hidden["__used"] + size > hidden["__left"]:
            raise ResultLimitError(hidden["__used"] + size)
        hidden["__used"] += size

    def notices(self) -> list[str]:
        """What a reader of the emitted blocks should know."""
        return list(dict.fromkeys(self.__dict__["__notices"]))[:_MAX_NOTICES]

    def emit(self, blocks: Mapping[str, object] | Sequence[Mapping[str, object]]) -> None:
        """Put MCP content blocks, dicts with a "type", into the answer beside the script's value."""
        for block in blocks if isinstance(blocks, (list, tuple)) else [blocks]:
            if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
                raise TypeError(_no_block(block))
            text, notices = encode_value(dict(block), "emitted block")
            self.__dict__["__notices"] += notices[:_MAX_NOTICES]
            self.charge(len(text) if text.isascii() else len(text.encode()))
            self.__dict__["__border"].emit(text)


def _no_block(value: object) -> str:
    fault = (
        'a dict without a text as "type"' if isinstance(value, Mapping) else f"of type {type(value).__name__}"
    )
    return (
        f'portal.emit takes content blocks such as {{"type": "text", "text": "..."}} or {{"type": "image", '
        f'"data": base64_text, "mimeType": "image/png"}}; this is {fault}'
    )

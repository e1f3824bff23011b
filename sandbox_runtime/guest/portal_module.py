"""The module `portal` that scripts import."""

import types
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox_runtime.guest.calls import Call, Calls
from sandbox_runtime.guest.errors import ToolError
from sandbox_runtime.guest.fetching import Fetching, Response
from sandbox_runtime.guest.library import LibraryFunction
from sandbox_runtime.guest.output import Host
from sandbox_runtime.guest.values import encode_value

_MAX_NOTICES = 10
_NAMES = "Response ToolError describe emit fetch get_prompt prompts read_resource resources search"


class ResultLimitError(Exception):
    """The value and the emitted blocks together are larger than the run may return."""

    __module__ = "portal"

    def __init__(self, size: int) -> None:
        super().__init__(f"the result is {size:,} bytes, more than this run may return")
        self.size = size


class PortalModule(types.ModuleType):
    """`emit`, `fetch`, `search`, `describe`, what upstreams offer besides functions, and the exception calls raise."""

    def __init__(self, host: Host, calls: Calls) -> None:
        super().__init__("portal", "What a script can do besides calling upstream functions.")
        self.ToolError = ToolError
        self.Response = Response
        self.fetch = Fetching(calls).fetch
        self.__all__ = _NAMES.split()
        self.__dict__["__host"] = host
        self.__dict__["__calls"] = calls
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
            self.__dict__["__host"].emit(text)

    def search(
        self, query: str = "", *, detail: str = "brief", upstream: str | None = None, limit: int = 5
    ) -> Call:
        """Find functions, as docs_search does: {"functions": [{"name", "signature", ...}], "total", "notices"}."""
        return self._call("search", {"query": query, "detail": detail, "limit": limit}, upstream)

    def describe(self, function: object) -> Call:
        """All that is known of one function, given itself or its name: as a row of `search`, with its `stub`."""
        name = function.__qualname__ if isinstance(function, LibraryFunction) else function
        if not isinstance(name, str):
            raise TypeError(
                f'portal.describe takes a function or its name, "tickets.get", not {type(function).__name__}'
            )
        return self._call("describe", {"function": name})

    def resources(self, upstream: Any = None) -> Call:
        """What can be read: {"resources": [{"uri", "name", "upstream", ...}], "templates", "notices"}."""
        return self._call("resources", {}, upstream)

    def read_resource(self, resource: Any, upstream: Any = None) -> Call:
        """The contents of a resource, given its URI or a row of `resources`: [{"uri", "text" or "blob", ...}]."""
        uri, upstream = _named(resource, "uri", upstream)
        return self._call("read_resource", {"uri": uri}, upstream)

    def prompts(self, upstream: Any = None) -> Call:
        """The prompts of upstreams: {"prompts": [{"name", "arguments", "upstream", ...}], "notices"}."""
        return self._call("prompts", {}, upstream)

    def get_prompt(
        self, prompt: Any, arguments: Mapping[str, str] | None = None, upstream: Any = None
    ) -> Call:
        """A prompt, given its name or a row of `prompts`, filled in: {"description", "messages"}."""
        name, upstream = _named(prompt, "name", upstream)
        return self._call("get_prompt", {"name": name, "arguments": dict(arguments or {})}, upstream)

    def _call(self, function: str, arguments: dict[str, object], upstream: Any = None) -> Call:
        """An upstream is meant by its name, or by the namespace itself."""
        if upstream is not None:
            arguments["upstream"] = getattr(upstream, "__name__", upstream)
        call: Call = self.__dict__["__calls"].create(f"portal.{function}", arguments)
        return call


def _named(given: Any, key: str, upstream: Any) -> tuple[Any, Any]:
    """What a row names, and the upstream that it is of unless another is given."""
    if isinstance(given, Mapping):
        return given.get(key), given.get("upstream") if upstream is None else upstream
    return given, upstream


def _no_block(value: object) -> str:
    fault = (
        'a dict without a text as "type"' if isinstance(value, Mapping) else f"of type {type(value).__name__}"
    )
    return (
        f'portal.emit takes content blocks such as {{"type": "text", "text": "..."}} or {{"type": "image", '
        f'"data": base64_text, "mimeType": "image/png"}}; this is {fault}'
    )

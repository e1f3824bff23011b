"""`portal.resources`, `read_resource`, `prompts` and `get_prompt`: what upstreams offer besides functions."""

from collections.abc import Mapping
from typing import Any

from sandbox_runtime.guest.calls import Call, Calls

RESOURCES = "portal.resources"
READ_RESOURCE = "portal.read_resource"
PROMPTS = "portal.prompts"
GET_PROMPT = "portal.get_prompt"


class Readings:
    """Makes the calls. What one of the lists answered says which upstream it is of."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def resources(self, upstream: Any = None) -> Call:
        """What can be read: {"resources": [{"uri", "name", "upstream", ...}], "templates", "notices"}."""
        return self._calls.create(RESOURCES, _of(upstream))

    def read_resource(self, resource: Any, upstream: Any = None) -> Call:
        """The contents of a resource, given its URI or a row of `resources`: [{"uri", "text" or "blob", ...}]."""
        uri, upstream = _named(resource, "uri", upstream)
        return self._calls.create(READ_RESOURCE, {"uri": uri, **_of(upstream)})

    def prompts(self, upstream: Any = None) -> Call:
        """The prompts of upstreams: {"prompts": [{"name", "arguments", "upstream", ...}], "notices"}."""
        return self._calls.create(PROMPTS, _of(upstream))

    def get_prompt(
        self, prompt: Any, arguments: Mapping[str, str] | None = None, upstream: Any = None
    ) -> Call:
        """A prompt, given its name or a row of `prompts`, filled in: {"description", "messages"}."""
        name, upstream = _named(prompt, "name", upstream)
        sent = {"name": name, "arguments": dict(arguments or {}), **_of(upstream)}
        return self._calls.create(GET_PROMPT, sent)


def _named(given: Any, key: str, upstream: Any) -> tuple[Any, Any]:
    """What a row names, and the upstream that it is of unless another is given."""
    if isinstance(given, Mapping):
        return given.get(key), given.get("upstream") if upstream is None else upstream
    return given, upstream


def _of(upstream: Any) -> dict[str, object]:
    """An upstream is meant by its name, or by the namespace itself."""
    return {} if upstream is None else {"upstream": getattr(upstream, "__name__", upstream)}

"""The module `portal` for scripts, and the responses of its `fetch`."""

import base64
import json as json_codec
import re
import types
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sandbox_runtime.guest.analysis.names import PORTAL_NAMES
from sandbox_runtime.guest.calls import Call, Calls, Host, ToolError
from sandbox_runtime.guest.library import LibraryFunction
from sandbox_runtime.guest.values import NotSerializable, encode_value

_MAX_NOTICES = 10
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}
_LONGEST = 1e300  # an infinite sum would not be JSON; the host has a limit of its own


class ResultLimitError(Exception):
    """The value and the emitted blocks together are larger than the run may return."""

    __module__ = "portal"


@dataclass(frozen=True)
class CurrentRun:
    """The current run. A session uses one object for all its runs, so that an imported `run` stays current."""

    __module__ = "portal"

    id: str = ""


class PortalModule(types.ModuleType):
    """Functions of the portal itself: search, fetch, waiting, kept results, resources and prompts of upstreams."""

    def __init__(self, host: Host, calls: Calls) -> None:
        super().__init__("portal", "Functions of the portal itself.")
        self.ToolError = ToolError
        self.Response = Response
        self.__all__ = PORTAL_NAMES
        self.__dict__["__host"] = host
        self.__dict__["__calls"] = calls
        self.__dict__["__run"] = self.run = CurrentRun()
        self.begin(0, "")

    def __dir__(self) -> list[str]:
        return self.__all__

    def begin(self, result_bytes: int, run_id: str) -> None:
        object.__setattr__(self.__dict__["__run"], "id", run_id)
        self.__dict__["__left"] = result_bytes
        self.__dict__["__used"] = 0
        self.__dict__["__notices"] = []

    def charge(self, size: int) -> None:
        """Count bytes of the result. Raises ResultLimitError: the host would refuse them."""
        hidden = self.__dict__
        if hidden["__used"] + size > hidden["__left"]:
            raise ResultLimitError("the result is too large", hidden["__used"] + size)
        hidden["__used"] += size

    def notices(self) -> list[str]:
        """Notices about the emitted blocks."""
        return list(dict.fromkeys(self.__dict__["__notices"]))[:_MAX_NOTICES]

    def emit(self, blocks: Mapping[str, object] | Sequence[Mapping[str, object]]) -> None:
        """Add MCP content blocks, dicts with a "type", to the answer."""
        for block in blocks if isinstance(blocks, (list, tuple)) else [blocks]:
            if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
                raise TypeError(_no_block(block))
            text, notices = encode_value(dict(block), "emitted block")
            self.__dict__["__notices"] += notices[:_MAX_NOTICES]
            self.charge(len(text) if text.isascii() else len(text.encode()))
            self.__dict__["__host"].emit(text)

    def blocks(self, result: Any) -> list[dict[str, Any]]:
        """All MCP content blocks of the call that returned this value, also those beside its data."""
        return self.__dict__["__calls"].results.blocks(result)  # type: ignore[no-any-return]  # as in `_call`

    def text(self, result: Any) -> str:
        """The text of the call that returned this value, as it was sent."""
        return "\n".join(each.get("text", "") for each in self.blocks(result) if each.get("type") == "text")

    def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        params: Any = None,
        json: Any = None,
        body: str | bytes | None = None,
        timeout: float | None = None,
        follow_redirects: bool = True,
    ) -> Call:
        """Fetch a URL from a host that the manifest allows. Returns a Response.

        `params` are added to the URL's query. `json` is sent as JSON, `body` unchanged.
        """
        sent = [[name, value] for name, value in (headers or {}).items()]
        if json is not None:
            if body is not None:
                raise TypeError("portal.fetch accepts json or body, not both")
            body = json_codec.dumps(json)
            if not any(name.lower() == "content-type" for name, _ in sent):
                sent.append(["Content-Type", "application/json"])
        arguments: dict[str, object] = {
            "url": _with_query(url, params),
            "method": method.upper(),
            "headers": sent,
        }
        if body is not None:
            if isinstance(body, NotSerializable):
                raise TypeError(body.advice())
            if not issubclass(type(body), (str, bytes, bytearray, memoryview)):
                what = f"text or bytes as body, not {type(body).__name__}"
                raise TypeError(f"portal.fetch accepts {what}: pass it as json, or its text")
            arguments["body"] = base64.b64encode(body.encode() if isinstance(body, str) else body).decode()
        if timeout is not None:
            arguments["timeout"] = timeout
        if not follow_redirects:
            arguments["follow_redirects"] = False
        call: Call = self.__dict__["__calls"].create("portal.fetch", arguments, Response)
        return call

    def search(
        self, query: str = "", *, detail: str = "brief", upstream: str | None = None, limit: int = 5
    ) -> Call:
        """Find functions, as docs_search does: {"functions": [{"name", "signature", ...}], "total", "notices"}."""
        return self._call("search", {"query": query, "detail": detail, "limit": limit}, upstream)

    def describe(self, function: object) -> Call:
        """Describe one function, given itself or its name: a row of `search` with its `stub`."""
        name = function.__qualname__ if isinstance(function, LibraryFunction) else function
        if not isinstance(name, str):
            raise TypeError(
                f'portal.describe expects a function or its name, "tickets.get", not {type(function).__name__}'
            )
        return self._call("describe", {"function": name})

    def resources(self, upstream: Any = None) -> Call:
        """List resources: {"resources": [{"uri", "name", "upstream", ...}], "templates", "notices"}."""
        return self._call("resources", {}, upstream)

    def read_resource(self, resource: Any, upstream: Any = None) -> Call:
        """Read a resource, given its URI or a row of `resources`: [{"uri", "text" or "blob", ...}]."""
        uri, upstream = _named(resource, "uri", upstream)
        return self._call("read_resource", {"uri": uri}, upstream)

    def prompts(self, upstream: Any = None) -> Call:
        """List prompts: {"prompts": [{"name", "arguments", "upstream", ...}], "notices"}."""
        return self._call("prompts", {}, upstream)

    def get_prompt(
        self, prompt: Any, arguments: Mapping[str, str] | None = None, upstream: Any = None
    ) -> Call:
        """Get a filled-in prompt, given its name or a row of `prompts`: {"description", "messages"}."""
        name, upstream = _named(prompt, "name", upstream)
        return self._call("get_prompt", {"name": name, "arguments": dict(arguments or {})}, upstream)

    def sleep(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> Call:
        """Wait for the sum of these times. Raises TypeError, ValueError: one is not a number, negative or infinite."""
        amounts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        total = sum(_time("sleep", unit, amount) * _SECONDS[unit] for unit, amount in amounts.items())
        return self._call("sleep", {"seconds": total})

    def event(self, name: str, timeout: float | None = None) -> Call:
        """Wait for an event, at most `timeout` seconds. Returns its content."""
        limit = {} if timeout is None else {"timeout": _time("event", "timeout", timeout)}
        return self._call("event", {"name": name, **limit})

    def event_url(self, name: str) -> Call:
        """The URL to which the content of an event is posted. Only this run's script knows it."""
        return self._call("event_url", {"name": name})

    def approve(self, question: str) -> Call:
        """Ask a person. Returns True."""
        return self._call("approve", {"question": question})

    def recall(self, handle: str) -> Call:
        """The result that an answer named by this handle."""
        return self._call("recall", {"handle": handle})

    def search_text(self, handle: str, text: str, context: int = 200, limit: int = 10) -> Call:
        """Find a text in a kept result: [{"position", "text"}], with `context` characters on both sides."""
        sought = {"handle": handle, "text": text, "context": context, "limit": limit}
        return self._call("search_text", sought)

    def _call(self, function: str, arguments: dict[str, object], upstream: Any = None) -> Call:
        """Create a call; `upstream` is its name or the namespace itself."""
        if upstream is not None:
            arguments["upstream"] = getattr(upstream, "__name__", upstream)
        call: Call = self.__dict__["__calls"].create(f"portal.{function}", arguments)
        return call


def _named(given: Any, key: str, upstream: Any) -> tuple[Any, Any]:
    """The identifier and the upstream of a row or of an identifier; an explicit upstream wins."""
    if isinstance(given, Mapping):
        return given.get(key), given.get("upstream") if upstream is None else upstream
    return given, upstream


def _time(function: str, name: str, amount: Any) -> float:
    """Raises TypeError, ValueError: the amount of time is not a number, or is negative, infinite or NaN."""
    if not isinstance(amount, (int, float)):
        raise TypeError(f"portal.{function} expects a number as {name}, not {type(amount).__name__}")
    if not 0 <= amount < _LONGEST:
        raise ValueError(f"portal.{function} expects a finite number from 0 as {name}, not {amount}")
    return amount


def _no_block(value: object) -> str:
    fault = (
        'a dict without a string as "type"'
        if isinstance(value, Mapping)
        else f"of type {type(value).__name__}"
    )
    return (
        f'portal.emit expects content blocks such as {{"type": "text", "text": "..."}} or {{"type": "image", '
        f'"data": base64_text, "mimeType": "image/png"}}; this is {fault}'
    )


_CHARSET = re.compile(r';\s*charset="?([\w.:-]+)', re.IGNORECASE)


class Headers(Mapping[str, str]):
    """The headers of a response, case-insensitive. Repeated headers are joined by commas."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs
        self._values: dict[str, str] = {}
        for name, value in pairs:
            key = name.lower()
            self._values[key] = f"{self._values[key]}, {value}" if key in self._values else value

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


class Response(NotSerializable):
    """The response of a host, whatever its status."""

    __module__ = "portal"

    def __init__(self, data: dict[str, Any]) -> None:
        self.status: int = data["status"]
        self.url: str = data["url"]
        self.headers = Headers([(name, value) for name, value in data["headers"]])
        self.bytes: bytes = base64.b64decode(data["body"])

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    @property
    def text(self) -> str:
        found = _CHARSET.search(self.headers.get("content-type", ""))
        try:
            return self.bytes.decode(found[1] if found else "utf-8", "replace")
        except (LookupError, UnicodeError):  # an unknown charset, or not a text encoding
            return self.bytes.decode("utf-8", "replace")

    def json(self) -> Any:
        return json_codec.loads(self.bytes)

    def raise_for_status(self) -> Self:
        """Return itself. Raises ToolError if the status is 400 or above."""
        if not self.ok:
            raise ToolError(f"HTTP {self.status} from {self.url}: {self.text[:200]}", "http_error")
        return self

    # Aliases that other clients use.
    status_code = property(lambda self: self.status)
    content = property(lambda self: self.bytes)

    def advice(self) -> str:
        return "a Response is not JSON: use response.json(), response.text or response.status"

    def __repr__(self) -> str:
        return f"<Response {self.status} from {self.url}>"


def _with_query(url: str, params: Any) -> str:
    if isinstance(params, Mapping):
        params = [*params.items()]
    if isinstance(params, list | tuple):
        params = [each for each in params if each[1:] != (None,)]
    if not params:
        return url
    base, mark, fragment = url.partition("#")
    query = urllib.parse.urlencode(params, doseq=True)
    return f"{base}{'&' if '?' in base else '?'}{query}{mark}{fragment}"

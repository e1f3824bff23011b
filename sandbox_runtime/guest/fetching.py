"""`portal.fetch`, and what it answers."""

import base64
import json as json_codec
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any, Self

from sandbox_runtime.guest.calls import Call, Calls
from sandbox_runtime.guest.errors import ToolError
from sandbox_runtime.guest.values import Uncrossable

FUNCTION = "portal.fetch"
_CHARSET = re.compile(r';\s*charset="?([\w.:-]+)', re.IGNORECASE)


class Headers(Mapping[str, str]):
    """The headers of an answer, in any case; several of one name are joined by commas."""

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


class Response(Uncrossable):
    """What a host answered, whatever its status."""

    __module__ = "portal"

    def __init__(self, told: dict[str, Any]) -> None:
        self.status: int = told["status"]
        self.url: str = told["url"]
        self.headers = Headers([(name, value) for name, value in told["headers"]])
        self.bytes: bytes = base64.b64decode(told["body"])

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    @property
    def text(self) -> str:
        found = _CHARSET.search(self.headers.get("content-type", ""))
        try:
            return self.bytes.decode(found[1] if found else "utf-8", "replace")
        except (LookupError, UnicodeError):  # nobody knows it, or it is no way to write text
            return self.bytes.decode("utf-8", "replace")

    def json(self) -> Any:
        return json_codec.loads(self.bytes)

    def raise_for_status(self) -> Self:
        """Itself, unless the status is 400 or above."""
        if not self.ok:
            raise ToolError(f"HTTP {self.status} from {self.url}: {self.text[:200]}", "http_error")
        return self

    # As other clients name the same.
    status_code = property(lambda self: self.status)
    content = property(lambda self: self.bytes)

    def advice(self) -> str:
        return "a Response is not JSON: use response.json(), response.text or response.status"

    def __repr__(self) -> str:
        return f"<Response {self.status} from {self.url}>"


class Fetching:
    """Makes the calls of `portal.fetch`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

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
        """Fetch a URL through the portal, from a host that the manifest allows; answers a Response.

        `params` are added to the URL's query; `json` is sent as JSON, `body` as it is.
        """
        sent = [[name, value] for name, value in (headers or {}).items()]
        if json is not None:
            if body is not None:
                raise TypeError("portal.fetch takes json or body, not both")
            body = json_codec.dumps(json)
            if not any(name.lower() == "content-type" for name, _ in sent):
                sent.append(["Content-Type", "application/json"])
        arguments: dict[str, object] = {
            "url": _with_query(url, params),
            "method": method.upper(),
            "headers": sent,
        }
        if body is not None:
            data = body.encode() if isinstance(body, str) else bytes(body)
            arguments["body"] = base64.b64encode(data).decode()
        if timeout is not None:
            arguments["timeout"] = timeout
        if not follow_redirects:
            arguments["follow_redirects"] = False
        return self._calls.create(FUNCTION, arguments, Response)


def _with_query(url: str, params: Any) -> str:
    if not params:
        return url
    base, mark, fragment = url.partition("#")
    query = urllib.parse.urlencode(params, doseq=True)
    return f"{base}{'&' if '?' in base else '?'}{query}{mark}{fragment}"

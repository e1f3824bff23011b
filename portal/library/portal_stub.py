"""The stub of `portal`, the module that every script has; sandbox_runtime/guest/ defines what it declares."""

from typing import Final

from portal.library.namespace import GENERATED

FETCH_SIGNATURE: Final = (
    "async def fetch(url: str, *, method: str = 'GET', headers: Mapping[str, str] | None = None, params: Any = None, "
    "json: Any = None, body: str | bytes | None = None, timeout: float | None = None, follow_redirects: bool = True) "
    "-> Response"
)

PORTAL_STUB: Final = f'''{GENERATED}.
import builtins
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Self, TypedDict

class ToolError(Exception):
    """A call has no value: what the tool or the portal said, a stable code, and what to do next."""
    code: str
    hint: str

class Response:
    """What a host answered to `fetch`, whatever its status."""
    status: int
    status_code: int
    ok: bool
    url: str
    headers: Mapping[str, str]
    text: str
    bytes: builtins.bytes
    content: builtins.bytes
    def json(self) -> Any: ...
    def raise_for_status(self) -> Self: ...

class FoundFunction(TypedDict):
    """`name` is what a script writes, `upstream` and `tool` are the manifest's and the server's own names."""
    name: str
    upstream: str
    tool: str
    signature: str
    summary: str
    stub: NotRequired[str]

class Found(TypedDict):
    """`total` functions fit, of which `functions` are the best."""
    functions: list[FoundFunction]
    total: int
    notices: list[str]
    namespaces: NotRequired[list[dict[str, Any]]]

def emit(blocks: Mapping[str, object] | Sequence[Mapping[str, object]]) -> None:
    """Put MCP content blocks, dicts with a "type", into the answer beside the script's value."""

{FETCH_SIGNATURE.replace("str | bytes", "str | builtins.bytes")}:
    """Fetch from a host that the manifest allows, through the portal. `params` are added to the URL's query, `json` is
    sent as JSON, `body` as it is. Without an answer it raises ToolError; an error's status is an answer."""

async def search(
    query: str = "", *, detail: Literal["brief", "full"] = "brief", upstream: str | None = None, limit: int = 5
) -> Found:
    """Find functions, as docs_search does, among those that the script was checked against."""

async def describe(function: object) -> FoundFunction:
    """All that is known of one function, given itself or its name, with its `stub`."""
'''

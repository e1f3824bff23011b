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
from typing import Any, Self

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

def emit(blocks: Mapping[str, object] | Sequence[Mapping[str, object]]) -> None:
    """Put MCP content blocks, dicts with a "type", into the answer beside the script's value."""

{FETCH_SIGNATURE.replace("str | bytes", "str | builtins.bytes")}:
    """Fetch from a host that the manifest allows, through the portal. `params` are added to the URL's query, `json` is
    sent as JSON, `body` as it is. Without an answer it raises ToolError; an error's status is an answer."""
'''

"""The stub of `portal`, the module that every script has; sandbox_runtime/guest/ defines what it declares."""

import ast
from typing import Final

from portal.library.library import GENERATED

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

class Resource(TypedDict):
    """Of `upstream`; a template has a `uriTemplate` instead of the `uri`."""
    upstream: str
    name: str
    uri: NotRequired[str]
    uriTemplate: NotRequired[str]
    title: NotRequired[str]
    description: NotRequired[str]
    mimeType: NotRequired[str]
    size: NotRequired[int]

class Resources(TypedDict):
    resources: list[Resource]
    templates: list[Resource]
    notices: list[str]

class Contents(TypedDict):
    """`text`, or `blob` in base64."""
    uri: NotRequired[str]
    mimeType: NotRequired[str]
    text: NotRequired[str]
    blob: NotRequired[str]

class Prompt(TypedDict):
    """`arguments` are `{{name, description?, required}}`."""
    upstream: str
    name: str
    arguments: list[dict[str, Any]]
    title: NotRequired[str]
    description: NotRequired[str]

class Prompts(TypedDict):
    prompts: list[Prompt]
    notices: list[str]

class Filled(TypedDict):
    """`messages` are `{{role, content}}`."""
    description: str
    messages: list[dict[str, Any]]

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

async def resources(upstream: object = None) -> Resources:
    """What can be read of one upstream, or of all that scripts may read from."""

async def read_resource(resource: str | Mapping[str, object], upstream: object = None) -> list[Contents]:
    """The contents of a resource, given a row of `resources`, or its URI and, if there are several, the upstream."""

async def prompts(upstream: object = None) -> Prompts:
    """The prompts of one upstream, or of all that scripts may read from."""

async def get_prompt(
    prompt: str | Mapping[str, object], arguments: Mapping[str, str] | None = None, upstream: object = None
) -> Filled:
    """A prompt, given its name or a row of `prompts`, filled in with `arguments`."""
'''


def portal_functions(name: str) -> list[str]:
    """The function of that name with what it does; for any other name, what they are called."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = {each.name: each for each in ast.parse(PORTAL_STUB).body if isinstance(each, kinds)}
    if name not in functions:
        return [f"every script has {', '.join(f'portal.{each}' for each in functions)}"]
    signature, _, _ = ast.unparse(functions[name]).partition(":\n")
    told = " ".join((ast.get_docstring(functions[name]) or "").split())
    return [f"every script has portal.{name}: {signature}: {told}"]

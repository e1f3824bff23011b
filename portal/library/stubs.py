"""The library as a typed package on disk, for type checkers and editors, beside the stub of `portal`."""

import ast
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final

from manifests.own_files import ORDINARY, write_whole
from portal.library.library import GENERATED, Library

PACKAGE: Final = "tools"
_PORTAL: Final = "portal.pyi"


class ForeignFileError(Exception):
    """A file that is not ours stands where a stub belongs; nothing was written."""


def write_stubs(library: Library, folder: Path, absent: Set[str] = frozenset()) -> frozenset[Path]:
    """Make `folder` hold the stubs of this library and of no other; says which files changed or went.

    With the folder as root, `from tools import github`, `from tools.github import create_issue` and `import github`
    resolve. Files are replaced one by one, each at once, and only if they differ. Stubs of a former library are
    removed, but for those of `absent` namespaces, which could not be had this time; files that do not begin as ours
    do are left alone, unless empty and in the way.

    Raises:
        ForeignFileError: A file that is not ours is in the way.
        OSError: The folder cannot be written.
    """
    package = folder / PACKAGE
    kept = {name for name in absent if _is_ours(package / f"{name}.pyi")} - library.namespaces.keys()
    files = {folder / path: text.encode() for path, text in _package(library, kept)}
    foreign = [path.name for path in files if path.exists() and not _is_ours(path) and path.stat().st_size]
    if foreign:
        told = ", ".join(sorted(foreign))
        raise ForeignFileError(f"not written by mcp-code-portal, and in the way: {told}")
    package.mkdir(parents=True, exist_ok=True)
    changed = {path for path, data in files.items() if not path.exists() or path.read_bytes() != data}
    for path in changed:
        write_whole(path, files[path], mode=ORDINARY, is_lasting=False)
    stale = {
        path
        for path in (*folder.glob("*.pyi"), *package.glob("*.pyi"))
        if path not in files and path.stem not in kept and _is_ours(path)
    }
    for path in stale:
        path.unlink()
    return frozenset(changed | stale)


def _package(library: Library, kept: Set[str]) -> Iterator[tuple[str, str]]:
    """Paths within the folder, and texts; without those of kept namespaces."""
    names = sorted(library.namespaces.keys() | kept)
    imports = "".join(f"from . import {name} as {name}\n" for name in names)
    yield f"{PACKAGE}/__init__.pyi", f"{GENERATED}.\n{imports}"
    yield f"{PACKAGE}/py.typed", ""
    yield _PORTAL, f"{GENERATED}.{PORTAL_STUB}"
    for name, namespace in library.namespaces.items():
        yield f"{PACKAGE}/{name}.pyi", namespace.module
        # By name, because `*` would leave out names that begin with `_`.
        lines = "".join(f"    {each} as {each},\n" for each in namespace.functions)
        imports = f"from {PACKAGE}.{name} import (\n{lines})\n" if lines else ""
        yield f"{name}.pyi", f"{GENERATED}.\n{imports}"


def _is_ours(path: Path) -> bool:
    """Whether it begins as our files do."""
    return path.exists() and path.read_bytes().startswith(GENERATED.encode())


def portal_functions(name: str) -> list[str]:
    """The function of that name with what it does; for any other name, what they are called."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = {each.name: each for each in ast.parse(PORTAL_STUB).body if isinstance(each, kinds)}
    if name not in functions:
        return [f"every script has {', '.join(f'portal.{each}' for each in functions)}"]
    signature, _, _ = ast.unparse(functions[name]).partition(":\n")
    told = " ".join((ast.get_docstring(functions[name]) or "").split())
    return [f"every script has portal.{name}: {signature.replace('builtins.', '')}: {told}"]


PORTAL_STUB: Final = '''
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

async def fetch(
    url: str, *, method: str = 'GET', headers: Mapping[str, str] | None = None, params: Any = None, json: Any = None,
    body: str | builtins.bytes | None = None, timeout: float | None = None, follow_redirects: bool = True
) -> Response:
    """Fetch from a host that the manifest allows, through the portal. `params` are added to the URL's query, `json` is
    sent as JSON, `body` as it is. Without an answer it raises ToolError; an error's status is an answer."""

async def search(
    query: str = "", *, detail: Literal["brief", "full"] = "brief", upstream: str | None = None, limit: int = 5
) -> Found:
    """Find functions, as docs_search does, among those that the script was checked against."""

async def describe(function: object) -> FoundFunction:
    """All that is known of one function, given itself or its name, with its `stub`."""

async def resources(upstream: object = None) -> dict[str, list[Any]]:
    """What can be read of one upstream, or of all that scripts may read from: `resources` have `upstream`, `name` and
    `uri`, `templates` have a `uriTemplate` instead; and `notices`."""

async def read_resource(resource: str | Mapping[str, object], upstream: object = None) -> list[dict[str, Any]]:
    """The contents of a resource, each with `text`, or `blob` in base64; given a row of `resources`, or its URI and, if
    there are several, the upstream."""

async def prompts(upstream: object = None) -> dict[str, list[Any]]:
    """The `prompts` of one upstream, or of all that scripts may read from, with `upstream`, `name` and `arguments`; and
    `notices`."""

async def get_prompt(
    prompt: str | Mapping[str, object], arguments: Mapping[str, str] | None = None, upstream: object = None
) -> dict[str, Any]:
    """`description` and `messages` of a prompt, given its name or a row of `prompts`, filled in with `arguments`."""
'''

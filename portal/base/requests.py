"""The requests of the two tools, parsed."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT, KernelName

DOCS_SEARCH = "docs_search"
EXECUTE_CODE = "execute_code"

MAX_SEARCH_LIMIT = 50
"""Functions in one answer of docs_search; a larger `limit` is an error."""

_STRICT: Final = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class DocsSearchRequest:
    """The arguments of one docs_search call."""

    __pydantic_config__ = _STRICT
    query: str = ""
    detail: Literal["brief", "full"] = "brief"
    upstream: str | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_SEARCH_LIMIT)] = 5
    kernel: KernelName | None = None
    """The language of the answer. Default: that of the client's last script."""


@dataclass(frozen=True)
class ExecuteCode:
    """The arguments of one execute_code call. Either `code` or `run` is given; "" counts as missing."""

    __pydantic_config__ = _STRICT
    code: str = ""
    session: str | None = None
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    background: bool = False
    run: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    kernel: Annotated[KernelName | None, Field(exclude_if=lambda kernel: kernel != JAVASCRIPT)] = None
    """Default: Python, which is not stored, so that portals without kernels read the journals of Python's runs."""


Request = TypeVar("Request", DocsSearchRequest, ExecuteCode)


class RequestError(Exception):
    """A client's arguments do not match the tool's inputSchema; nothing was done."""

    code = "invalid_arguments"
    hint = "Nothing was done. Change the arguments."


def docs_search_request(arguments: dict[str, Json]) -> DocsSearchRequest:
    """Parse the arguments. Raises RequestError: it names every invalid one."""
    return _parse(DOCS_SEARCH, DocsSearchRequest, arguments)


def execute_code_request(arguments: dict[str, Json]) -> ExecuteCode:
    """Parse the arguments. Raises RequestError: it names every invalid one."""
    request = _parse(EXECUTE_CODE, ExecuteCode, arguments)
    if request.run is None and "code" not in arguments:
        raise RequestError(f"{EXECUTE_CODE}: `code`: Field required")
    if request.run is not None and (request.code or request.session or request.background):
        raise RequestError(
            f"{EXECUTE_CODE}: `run` asks for an earlier run, so nothing else can be given beside it"
        )
    if request.background and request.session is not None:
        raise RequestError(f"{EXECUTE_CODE}: a run in the background has no session")
    return request


def _parse(tool: str, kind: type[Request], arguments: dict[str, Json]) -> Request:
    """Parse the arguments. Null, and an empty upstream, session or kernel, count as missing: models write them so."""
    given = {
        name: value
        for name, value in arguments.items()
        if value is not None and not (value == "" and name in ("upstream", "session", "run", "kernel"))
    }
    try:
        request: Request = _ADAPTERS[kind].validate_python(given)
    except ValidationError as error:
        known = ", ".join(each.name for each in fields(kind))
        faults = [
            f"there is no argument {str(each['loc'][0])[:60]!r}; arguments are {known}"
            if each["type"] == "unexpected_keyword_argument"
            else f"`{each['loc'][0]}`: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)
        ]
        raise RequestError(f"{tool}: {'; '.join(faults)}") from None
    return request


_ADAPTERS: Final[dict[type, TypeAdapter[Any]]] = {
    kind: TypeAdapter(kind) for kind in (DocsSearchRequest, ExecuteCode)
}

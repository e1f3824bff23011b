"""Functions as docs_search shows them: rows of data, and Python stub code."""

from collections.abc import Iterator, Sequence

from manifests.json_value import Json
from portal.library.function import Function
from portal.library.rendering import CUT_PARAMETERS


def rows(functions: Sequence[Function], full: int) -> list[dict[str, Json]]:
    """One row a function; the first `full` of them have a `stub`."""
    shown: list[dict[str, Json]] = [
        {
            "name": function.qualified,
            "upstream": function.upstream,
            "tool": function.tool,
            "signature": _signature(function),
            "summary": function.summary,
        }
        for function in functions
    ]
    for row, stub in zip(shown, _stubs(functions[:full]), strict=False):
        row["stub"] = stub
    return shown


def stub_code(functions: Sequence[Function], full: int) -> Iterator[str]:
    """The same as lines of Python; what is no code is a comment."""
    for function, stub in zip(functions, _stubs(functions[:full]), strict=False):
        tool = "" if function.tool == function.name else f", tool {function.tool!r}"
        yield f"# {function.qualified}, of upstream {function.upstream!r}{tool}\n{stub}\n"
    for function in functions[full:]:
        tool = "" if function.tool == function.name else f" (tool {function.tool!r})"
        more = ", with more parameters: see its full stub" if _is_cut(function) else ""
        about = f": {function.summary}" if function.summary else ""
        yield f"{_signature(function)}: ...  # {function.qualified}{tool}{more}{about}"


def _signature(function: Function) -> str:
    """As it stands in the namespace's stub, where the name has no prefix; valid Python also where it was cut."""
    text = function.signature.replace(f"async def {function.qualified}(", f"async def {function.name}(", 1)
    return text.replace(CUT_PARAMETERS, ") -> ", 1)


def _is_cut(function: Function) -> bool:
    return CUT_PARAMETERS in function.signature


def _stubs(functions: Sequence[Function]) -> list[str]:
    """Each function's stub, with those of its types that an earlier one of its namespace has not brought."""
    told: set[tuple[str, str]] = set()
    stubs = []
    for function in functions:
        news = [text for text in function.types if (function.namespace, text) not in told]
        told.update((function.namespace, text) for text in news)
        stubs.append("\n\n".join([*news, function.definition]))
    return stubs

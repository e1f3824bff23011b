"""Functions as docs_search shows them: rows of data, and Python stub code."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from manifests.json_value import Json
from portal.library.function import CUT_PARAMETERS, LONGEST_REQUIRED, Function, short_parameter

LONGEST_BRIEF: Final = 120
"""Characters of parameters in a brief signature; optional ones beyond are left out, which it says."""


def rows(functions: Sequence[Function], full: int) -> list[dict[str, Json]]:
    """One row a function; the first `full` of them have a `stub`."""
    shown: list[dict[str, Json]] = [
        {
            "name": function.qualified,
            "upstream": function.upstream,
            "tool": function.tool,
            "signature": brief_signature(function).text,
            "summary": function.summary,
        }
        for function in functions
    ]
    for row, stub in zip(shown, _stubs(functions[:full]), strict=False):
        row["stub"] = stub
    return shown


def stub_code(functions: Sequence[Function], full: int) -> Iterator[str]:
    """The same as lines of Python, but for what a script has no use for; what is no code is a comment."""
    for function, stub in zip(functions, _stubs(functions[:full]), strict=False):
        yield f"# {function.qualified}\n{stub}\n"
    for function in functions[full:]:
        signature = brief_signature(function)
        more = " (more parameters)" if signature.is_cut else ""
        about = f": {function.summary.removesuffix('.')}" if function.summary else ""
        yield f"{signature.text}: ... # {function.qualified}{more}{about}"


@dataclass(frozen=True)
class BriefSignature:
    """One line of Python; `is_cut` if not all of the parameters are in it."""

    text: str
    is_cut: bool


def brief_signature(function: Function) -> BriefSignature:
    """The function as it stands in its namespace, in few tokens: without what says nothing or is plain to see.

    That is the type of a parameter whose default shows it, `| None` before `= None`, and a result of any type. Of the
    optional parameters as many are there as fit into `LONGEST_BRIEF` characters.
    """
    shown: list[str] = []
    left = LONGEST_BRIEF
    is_cut = CUT_PARAMETERS in function.signature
    for parameter in function.parameters:
        text = short_parameter(parameter)
        left -= len(text) + 2
        if left < (LONGEST_BRIEF - LONGEST_REQUIRED if parameter.required else 0):
            is_cut = True
            break
        shown.append(text)
    others = ["**others"] if function.takes_others else []
    keywords = ", ".join([*(["*", *shown] if shown else []), *others])
    returns = "" if function.returns == "Any" else f" -> {function.returns}"
    return BriefSignature(f"async def {function.name}({keywords}){returns}", is_cut)


def _stubs(functions: Sequence[Function]) -> list[str]:
    """Each function's stub, with those of its types that an earlier one of its namespace has not brought."""
    told: set[tuple[str, str]] = set()
    stubs = []
    for function in functions:
        news = [text for text in function.types if (function.namespace, text) not in told]
        told.update((function.namespace, text) for text in news)
        stubs.append("\n\n".join([*news, function.definition]))
    return stubs

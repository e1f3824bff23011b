"""Functions and modules as Python text: signatures for models, stubs for models and type checkers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from portal.library.docstrings import comment, docstring
from portal.library.function import Parameter
from portal.library.plain_text import one_line
from portal.library.type_definitions import Definition, TypedDictDefinition, definition_text
from portal.library.type_expressions import (
    BUILTIN_WORDS,
    NONE,
    PLAIN,
    TYPING_WORDS,
    Spelling,
    Type,
    render,
    union,
)

LONGEST_SIGNATURE: Final = 400
"""Characters of a one-line signature; optional parameters beyond are left out, which it shows by `...`."""

LONGEST_REQUIRED: Final = 2_000
"""Characters of required parameters that a one-line signature shows."""

LONGEST_PARAMETER_DOCS: Final = 12_000
"""Characters of all parameters' descriptions in one docstring."""

LONGEST_PARAMETER_DOC: Final = 500
"""Characters of one of them, with hints and default."""

CUT_PARAMETERS: Final = ", ...) -> "
"""How a one-line signature shows that parameters were left out."""

OBSERVED: Final = "the result as it was seen in earlier calls; the tool declares none, so it may differ"
"""What stands behind a return type that was learnt from real results."""

MISMATCHED: Final = "real results were otherwise: "
"""What stands, with where they were, behind a return type that some did not fit."""

_LONGEST_LINE: Final = 100


def signature(
    qualified: str, parameters: Sequence[Parameter], others: Type | None, returns: Type, longest: int
) -> str:
    """One line: `async def tickets.create_issue(*, title: str, labels: list[str] = ...) -> Issue`."""
    end = f") -> {render(returns)}"
    left = longest - len(qualified) - len(end)
    shown: list[str] = []
    for parameter in parameters:
        text = parameter_text(parameter)
        left -= len(text) + 2
        if left < (longest - LONGEST_REQUIRED if parameter.required else 0):
            shown.append("...")
            break
        shown.append(text)
    else:
        shown += others_text(parameters, others)
    return f"async def {qualified}({_keyword_only(shown, bool(parameters))}{end}"


def definition(
    name: str,
    parameters: Sequence[Parameter],
    others: Type | None,
    returns: Type,
    body: str,
    spelling: Spelling,
    *,
    remark: str,
) -> str:
    """A function's definition with its docstring (or `...`), on one line or one line per parameter.

    `remark` stands behind the return type. The types say that None stands for an optional argument that is not
    sent: calls take it in any case, and a checker must know, but a model reads one word less elsewhere.
    """
    shown = [parameter_text(parameter, spelling, none_omits=True) for parameter in parameters]
    shown += others_text(parameters, others, spelling)
    arguments = _keyword_only(shown, bool(parameters))
    head = f"async def {name}({arguments}) -> {render(returns, spelling)}:"
    if len(head) > _LONGEST_LINE and shown:
        lines = ["*", *shown] if parameters else shown
        inner = "".join(f"    {line},\n" for line in lines)
        head = f"async def {name}(\n{inner}) -> {render(returns, spelling)}:"
    return _with_body(head, body, remark)


def shown_definition(
    name: str,
    parameters: Sequence[Parameter],
    others: Type | None,
    returns: Type,
    body: str,
    *,
    remark: str,
) -> str:
    """A definition as models read it: in fewer tokens, with what is known of each parameter behind it.

    Like a brief signature it leaves out what parameters' defaults show. `body` is the docstring, or "".
    """
    shown = [short_parameter(parameter) for parameter in parameters]
    docs = _parameter_docs(parameters)
    more = others_text(parameters, others)
    if docs:
        told = (comment(docs.get(parameter.name, ""), LONGEST_PARAMETER_DOC) for parameter in parameters)
        lines = ["*,", *(f"{text},{doc}" for text, doc in zip(shown, told, strict=True)), *more]
        arguments = "".join(f"\n    {line}" for line in lines) + "\n"
    else:
        arguments = _keyword_only([*shown, *more], bool(parameters))
    head = f"async def {name}({arguments}) -> {render(returns)}:"
    return _with_body(head, body, remark)


def _with_body(head: str, body: str, remark: str) -> str:
    behind = comment(remark)
    return f"{head}{behind}\n{body}" if body else f"{head} ...{behind}"


def short_parameter(parameter: Parameter) -> str:
    """Without what says nothing or is plain to see: the type that a default shows, and `| None` before `= None`."""
    annotation, default = parameter.annotation, parameter.default_source
    if parameter.required:
        return f"{parameter.name}: {annotation}"
    if default == "None":
        annotation = annotation.removesuffix(" | None")
    is_shown = annotation in _SHOWN_BY_DEFAULT and default not in ("None", "...")
    return f"{parameter.name}={default}" if is_shown else f"{parameter.name}: {annotation} = {default}"


_SHOWN_BY_DEFAULT = frozenset({"bool", "float", "int", "str"})


def parameter_text(parameter: Parameter, spelling: Spelling = PLAIN, *, none_omits: bool = False) -> str:
    """`title: str` or `labels: list[str] = ...`."""
    if parameter.required:
        return f"{parameter.name}: {render(parameter.type, spelling)}"
    type_ = union([parameter.type, NONE]) if none_omits else parameter.type
    return f"{parameter.name}: {render(type_, spelling)} = {parameter.default_source}"


def others_text(
    parameters: Iterable[Parameter], others: Type | None, spelling: Spelling = PLAIN
) -> list[str]:
    """`**others: Any` for a tool that takes what its schema does not name."""
    if others is None:
        return []
    taken = {parameter.name for parameter in parameters}
    name = "others"
    while name in taken:
        name += "_"
    return [f"**{name}: {render(others, spelling)}"]


def documentation(description: str, parameters: Iterable[Parameter], example: str = "") -> str:
    """A function's docstring: the tool's description, what is known of each parameter, and a call."""
    lines = [f"    {name}: {doc}" for name, doc in _parameter_docs(parameters).items()]
    text = "\n".join([description, "", "Args:", *lines]) if lines else description
    text = f"{text}\n\nExample: {example}" if example else text
    return docstring(text.strip(), indent="    ") if text.strip() else ""


def _parameter_docs(parameters: Iterable[Parameter]) -> dict[str, str]:
    """What is known of parameters, as long as there is room."""
    left = LONGEST_PARAMETER_DOCS
    docs = {}
    for parameter in parameters:
        left -= len(parameter.doc)
        if parameter.doc and left >= 0:
            docs[parameter.name] = parameter.doc
    return docs


def module(
    header: str,
    summary: str,
    definitions: Collection[Definition],
    functions: Iterable[str],
    spelling: Spelling,
) -> str:
    """A namespace's `.pyi`."""
    top = "\n".join([header, *_mypy_settings(definitions)])
    parts = [top, *([docstring(one_line(summary, 200))] if summary.strip() else []), _imports(spelling)]
    parts += [definition_text(each, spelling) for each in definitions]
    return "\n\n".join([*parts, *functions]) + "\n"


def module_spelling(functions: Iterable[str]) -> Spelling:
    """How a module writes words that functions of its own hide: `_list` where a tool is called `list`."""
    taken = set(functions)
    spelling: dict[str, str] = {}
    for word in (*TYPING_WORDS, *BUILTIN_WORDS):
        if word in taken:
            alias = f"_{word}"
            while alias in taken:
                alias = f"_{alias}"
            spelling[word] = alias
    return spelling


def _imports(spelling: Spelling) -> str:
    typing = ", ".join(_imported(word, spelling) for word in TYPING_WORDS)
    builtins = ", ".join(_imported(word, spelling) for word in BUILTIN_WORDS if word in spelling)
    first = f"from builtins import {builtins}\n" if builtins else ""
    return f"{first}from typing import {typing}"


def _imported(word: str, spelling: Mapping[str, str]) -> str:
    return f"{word} as {spelling[word]}" if word in spelling else word


def _mypy_settings(definitions: Iterable[Definition]) -> list[str]:
    """mypy does not know PEP 728's `extra_items` yet."""
    has_extra = any(isinstance(each, TypedDictDefinition) and each.extra is not None for each in definitions)
    return ['# mypy: disable-error-code="call-arg, misc"'] if has_extra else []


def _keyword_only(shown: Sequence[str], has_named: bool) -> str:
    return ", ".join(["*", *shown] if has_named else shown)

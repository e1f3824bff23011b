"""Functions and modules as Python text: signatures for models, stubs for models and type checkers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from portal.library.function import Parameter
from portal.library.plain_text import comment, docstring, one_line
from portal.library.stub_types import BUILTIN_WORDS, TYPING_WORDS, StubTypes

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

_LONGEST_LINE: Final = 100
_SHOWN_BY_DEFAULT: Final = frozenset({"bool", "float", "int", "str"})


@dataclass(frozen=True)
class FunctionStub:
    """One function as it is to be rendered; `others` is the type of keywords beyond its parameters, if it takes any.

    `description` and `example` are for its docstring, `remark` stands behind the return type.
    """

    name: str
    parameters: Sequence[Parameter]
    others: str | None
    returns: str
    description: str
    example: str
    remark: str

    def signature(self, namespace: str) -> str:
        """One line: `async def tickets.create_issue(*, title: str, labels: list[str] = ...) -> Issue`."""
        end = f") -> {self.returns}"
        left = LONGEST_SIGNATURE - len(namespace) - len(self.name) - len(end)
        shown: list[str] = []
        for parameter in self.parameters:
            text = _parameter_text(parameter, parameter.annotation)
            left -= len(text) + 2
            if left < (LONGEST_SIGNATURE - LONGEST_REQUIRED if parameter.required else 0):
                shown.append("...")
                break
            shown.append(text)
        else:
            shown += self._others()
        return f"async def {namespace}.{self.name}({self._keyword_only(shown)}{end}"

    def definition(self) -> str:
        """As it stands in its module, on one line or one line per parameter.

        The types say that None stands for an optional argument that is not sent: calls take it in any case, and a
        checker must know, but a model reads one word less elsewhere.
        """
        shown = [_parameter_text(each, _with_none(each)) for each in self.parameters] + self._others()
        head = f"async def {self.name}({self._keyword_only(shown)}) -> {self.returns}:"
        if len(head) > _LONGEST_LINE and shown:
            lines = ["*", *shown] if self.parameters else shown
            inner = "".join(f"    {line},\n" for line in lines)
            head = f"async def {self.name}(\n{inner}) -> {self.returns}:"
        docs = [f"    {name}: {doc}" for name, doc in self._docs().items()]
        return self._with_body(head, "\n".join(["", "", "Args:", *docs]) if docs else "")

    def shown_definition(self) -> str:
        """As models read it: in fewer tokens, with what is known of each parameter behind it."""
        shown = [short_parameter(each) for each in self.parameters]
        docs, others = self._docs(), self._others()
        arguments = self._keyword_only([*shown, *others])
        if docs:
            told = (comment(docs.get(each.name, ""), LONGEST_PARAMETER_DOC) for each in self.parameters)
            lines = ["*,", *(f"{text},{doc}" for text, doc in zip(shown, told, strict=True)), *others]
            arguments = "".join(f"\n    {line}" for line in lines) + "\n"
        return self._with_body(f"async def {self.name}({arguments}) -> {self.returns}:", "")

    def _with_body(self, head: str, docs: str) -> str:
        example = f"\n\nExample: {self.example}" if self.example else ""
        text = f"{self.description}{docs}{example}".strip()
        behind = comment(self.remark)
        return f"{head}{behind}\n{docstring(text, indent='    ')}" if text else f"{head} ...{behind}"

    def _keyword_only(self, shown: Sequence[str]) -> str:
        return ", ".join(["*", *shown] if self.parameters else shown)

    def _others(self) -> list[str]:
        """`**others: Any` for a tool that takes what its schema does not name."""
        name = "others"
        while any(each.name == name for each in self.parameters):
            name += "_"
        return [] if self.others is None else [f"**{name}: {self.others}"]

    def _docs(self) -> Mapping[str, str]:
        """What is known of parameters, as far as it fits."""
        left = LONGEST_PARAMETER_DOCS
        docs = {}
        for parameter in self.parameters:
            left -= len(parameter.doc)
            if parameter.doc and left >= 0:
                docs[parameter.name] = parameter.doc
        return docs


def short_parameter(parameter: Parameter) -> str:
    """Without what says nothing or is plain to see: the type that a default shows, and `| None` before `= None`."""
    annotation, default = parameter.annotation, parameter.default_source
    if default == "None":
        annotation = annotation.removesuffix(" | None")
    elif annotation in _SHOWN_BY_DEFAULT and default not in ("", "..."):
        return f"{parameter.name}={default}"
    return _parameter_text(parameter, annotation)


def module(header: str, summary: str, types: StubTypes, functions: Iterable[str]) -> str:
    """A namespace's `.pyi`."""
    # mypy does not know PEP 728's `extra_items` yet.
    has_extra = any(", extra_items=" in each for each in types.definitions.values())
    top = f'{header}\n# mypy: disable-error-code="call-arg, misc"' if has_extra else header
    parts = [top, *([docstring(one_line(summary, 200))] if summary.strip() else []), _imports(types)]
    return "\n\n".join([*parts, *types.definitions.values(), *functions]) + "\n"


def _parameter_text(parameter: Parameter, annotation: str) -> str:
    """`title: str` or `labels: list[str] = ...`."""
    default = "" if parameter.required else f" = {parameter.default_source}"
    return f"{parameter.name}: {annotation}{default}"


def _with_none(parameter: Parameter) -> str:
    annotation = parameter.annotation
    takes_none = parameter.required or annotation in ("Any", "_Any", "None") or annotation.endswith("| None")
    return annotation if takes_none else f"{annotation} | None"


def _imports(types: StubTypes) -> str:
    def imported(word: str) -> str:
        return word if types.word(word) == word else f"{word} as {types.word(word)}"

    builtins = ", ".join(imported(word) for word in BUILTIN_WORDS if types.word(word) != word)
    first = f"from builtins import {builtins}\n" if builtins else ""
    return f"{first}from typing import {', '.join(map(imported, TYPING_WORDS))}"

"""How types and functions are written in the language of each kernel: the words and forms that differ."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, TypeAlias

from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from portal.base import plain_text

Type: TypeAlias = tuple[str, ...]
"""The members of a union as source, `None` last, with Python's words for types without parts.

A member that begins with `=` is a literal value.
"""

ANY: Final[Type] = ("Any",)
NONE: Final[Type] = ("None",)

_BEGINS_LITERAL: Final = frozenset('"-0123456789tf')


def union(types: Iterable[Type]) -> Type:
    """The union of these types. `Any` absorbs all others."""
    members = dict.fromkeys(member for type_ in types for member in type_)
    if "Any" in members or not members:
        return ANY
    return (*(each for each in members if each != "None"), *(NONE if "None" in members else ()))


class Notation:
    """Python's words and forms. Those of another language override what differs."""

    words: ClassVar[Mapping[str, str]] = {}
    """By Python's word."""
    bare: ClassVar[Mapping[str, str]] = {"list[Any]": "list", "dict[str, Any]": "dict"}
    """Shorter words, for a type that only models read."""
    literals: ClassVar = "Literal[{}]", ", "
    """The form of some literal values, and what separates them."""
    plain_key: ClassVar = re.compile(r"[\w$@.-]{1,60}", re.ASCII)
    """Keys of objects that need no quotes."""
    has_wire_names: ClassVar = False
    """Whether parameters are called as the tool's properties are, not by Python names."""
    equals: ClassVar = "="
    """Between a parameter and a default that shows its type."""
    sign: ClassVar = "#"
    """Begins a comment."""

    def text(self, type_: Type) -> str:
        """The source of a type."""
        if len(type_) == 1 and type_[0][0] != "=":  # nearly all
            return self.words.get(type_[0], type_[0])
        form, comma = self.literals
        exact = form.format(comma.join(each[1:] for each in type_ if each.startswith("=")))
        members = (exact if each.startswith("=") else self.words.get(each, each) for each in type_)
        return " | ".join(dict.fromkeys(members))

    def list_of(self, type_: Type) -> str:
        return f"list[{self.text(type_)}]"

    def dict_of(self, type_: Type) -> str:
        return f"dict[str, {self.text(type_)}]"

    def literal(self, value: Json) -> str:
        return plain_text.literal_text(value)

    def default(self, value: Json) -> str | None:
        """The source of a default; None if it is not simple enough."""
        return plain_text.default_text(value, self.literal)

    def key(self, key: str) -> str:
        return key if self.plain_key.fullmatch(key) else self.literal(key)

    def others(self, name: str, type_: str) -> str:
        """Further keywords, by the name of all of them."""
        return name if type_ == "Any" else f"{name}: {type_}"

    def head(self, function: str, parameters: str, result: str) -> str:
        return f"{function}({parameters}) -> {result}"

    def comment(self, text: str, longest: int = plain_text.LONGEST_COMMENT) -> str:
        return plain_text.comment(text, longest, self.sign)

    def documented(self, head: str, text: str) -> str:
        return f"{head}\n{plain_text.docstring(text, indent='    ')}" if text else head


GLOBAL_NAMES: Final = frozenset(
    """
    await break case catch class const continue debugger default delete do else enum export extends false finally for
    function if implements import in instanceof interface let new null package private protected public return static
    super switch this throw true try typeof var void while with yield arguments eval undefined globalThis
    AggregateError Array ArrayBuffer AsyncDisposableStack Atomics BigInt BigInt64Array BigUint64Array Boolean DataView
    Date DisposableStack Error EvalError FinalizationRegistry Float16Array Float32Array Float64Array Function Infinity
    Int16Array Int32Array Int8Array InternalError Intl Iterator JSON Map Math NaN Number Object Promise Proxy RangeError
    ReferenceError Reflect RegExp Response Set SharedArrayBuffer String SuppressedError Symbol SyntaxError TextDecoder
    TextEncoder ToolError TypeError URIError URLSearchParams Uint16Array Uint32Array Uint8Array Uint8ClampedArray
    WeakMap WeakRef WeakSet atob btoa clearImmediate clearInterval clearTimeout console crypto decodeURI
    decodeURIComponent encodeURI encodeURIComponent escape isFinite isNaN parseFloat parseInt performance portal
    queueMicrotask setImmediate setInterval setTimeout structuredClone tools unescape
    """.split()  # noqa: SIM905
)
"""Names that mean something else in JavaScript. A namespace with one of them is only in `tools`: `tools.delete.f()`."""


class _TypeScript(Notation):
    """TypeScript. A function takes one object, whose rows are written like parameters: `{id: number, limit = 10}`."""

    words: ClassVar = {
        "Any": "any",
        "None": "null",
        "bool": "boolean",
        "dict[str, Any]": "Record<string, any>",
        "float": "number",
        "int": "number",
        "list[Any]": "any[]",
        "str": "string",
    }
    bare: ClassVar = {"dict[str, Any]": "object", "Record<string, any>": "object"}
    literals: ClassVar = "{}", "|"
    plain_key: ClassVar = re.compile(r"(?!\d)[\w$]{1,60}", re.ASCII)
    has_wire_names: ClassVar = True
    equals: ClassVar = " = "
    sign: ClassVar = "//"

    def list_of(self, type_: Type) -> str:
        is_union = len(type_) > 1 or ("|" in type_[0] and type_[0][0] in _BEGINS_LITERAL)
        return f"({self.text(type_)})[]" if is_union else f"{self.text(type_)}[]"

    def dict_of(self, type_: Type) -> str:
        return f"Record<string, {self.text(type_)}>"

    def literal(self, value: Json) -> str:
        source = json.dumps(value, ensure_ascii=False)
        return "".join(f"\\u{{{ord(each):x}}}" if plain_text.is_hidden(each) else each for each in source)

    def others(self, name: str, type_: str) -> str:
        return f"[key: string]: {type_}"

    def head(self, function: str, parameters: str, result: str) -> str:
        path = f"tools.{function}" if function.partition(".")[0] in GLOBAL_NAMES else function
        return f"{path}({f'{{{parameters}}}' if parameters else ''}): Promise<{result}>"

    def documented(self, head: str, text: str) -> str:
        return f"{jsdoc(text)}\n{head}" if text else head


def jsdoc(text: str, indent: str = "") -> str:
    """A documentation comment with this text. No type checker reads it as a directive."""
    lines = text.replace("*/", "*\\/").replace("@ts-", "@ ts-").split("\n")
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */"
    return "\n".join([f"{indent}/**", *(f"{indent} * {line}".rstrip() for line in lines), f"{indent} */"])


PYTHON_NOTATION: Final = Notation()
TYPESCRIPT: Final = _TypeScript()
NOTATIONS: Final[Mapping[KernelName, Notation]] = {PYTHON: PYTHON_NOTATION, JAVASCRIPT: TYPESCRIPT}

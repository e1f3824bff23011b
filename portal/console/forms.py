"""The form about one call that waits: what it shows, and what a person sent with it."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, Self, TypeAlias

from manifests.json_value import Json
from portal.base.plain_text import hidden_places
from portal.base.tokens import compact
from portal.identity.approvers import Approvers
from portal.records.store.records import CallRow
from portal.runs.decisions import may_stand
from portal.runs.shown_calls import MAX_LATER, indented, sha256_of
from sandbox_runtime.guest_json import GuestJsonError, clean, parse

Kind: TypeAlias = Literal["text", "boolean", "number", "json"]

_TYPED: Final[dict[type, Kind]] = {bool: "boolean", int: "number", float: "number"}


@dataclass(frozen=True)
class Field:
    """The argument `name`, in the field `key` of a form. Whether it fits the tool is checked before the call."""

    key: str
    name: str
    was: Json

    @property
    def kind(self) -> Kind:
        # Not a text with hidden characters, which whoever edits it must see, nor one that another value looks like.
        is_text = isinstance(self.was, str) and _is_plain(self.was) and not _is_data(self.was)
        return "text" if is_text else _TYPED.get(type(self.was), "json")

    @cached_property
    def text(self) -> str:
        """Its value as the field contains it."""
        if self.kind == "text":
            return str(self.was)
        is_ascii = not _is_plain(json.dumps(self.was, ensure_ascii=False))
        line = json.dumps(self.was, ensure_ascii=is_ascii)
        most = 1_000 + 4 * len(line)  # a short value of 200 levels would be mostly spaces
        lines = indented(self.was, most, is_ascii=is_ascii)
        return lines if len(lines) <= most else line

    @property
    def is_long(self) -> bool:
        """Whether it needs several lines."""
        return self.kind in ("text", "json") and (len(self.text) > 60 or "\n" in self.text)

    def read(self, given: str) -> Json:
        """The value that a person wrote. Raises ValueError: it is none, which the message says."""
        given = given.replace("\r\n", "\n")  # as browsers send the lines of a text
        if given == self.text:
            return self.was
        if self.kind == "text":
            return given
        is_text = isinstance(self.was, str)  # 1 instead of "1" would be another type
        with suppress(GuestJsonError):
            value = parse(given.encode())
            if isinstance(value, str) if is_text else self.kind in ("json", _TYPED.get(type(value))):
                return value
        wanted = "a text in quotes" if is_text else "valid JSON" if self.kind == "json" else f"a {self.kind}"
        raise ValueError(f"it is not {wanted}")


@dataclass(frozen=True, slots=True)
class Change:
    """What a person wrote instead of an argument. `problem` says why it cannot be used."""

    field: Field
    text: str
    value: Json = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that waits for a person, `since` a time in seconds since 1970. An approval may stand for `later` calls.

    `fixed` says why its arguments cannot be edited; "" if they can.
    """

    call: CallRow
    since: float
    later: int
    shown: Mapping[str, Json]
    fields: tuple[Field, ...]
    fixed: str

    @classmethod
    def of(cls, call: CallRow, approvers: Approvers, since: float = 0.0) -> Self:
        later = MAX_LATER if may_stand(call, approvers) else 0
        shown = json.loads(call.shown)
        arguments, fixed = shown.get("arguments") or {}, ""
        if not isinstance(arguments, dict):
            arguments, fixed = {}, "They are too long to be edited here"
        elif sha256_of(arguments) != call.arguments_sha256:  # a masked secret would be sent as its mask
            fixed = "They contain a secret, which is masked, so they cannot be edited here"
        fields = (Field(f"a{n}", *each) for n, each in enumerate(arguments.items()))
        return cls(call, since, later, shown, tuple(fields), fixed if shown.get("arguments") else "")

    def changes(self, given: Mapping[str, str]) -> list[Change]:
        """The arguments that a form changes. A missing field changes nothing."""
        found = []
        for field in () if self.fixed else self.fields:
            text = given.get(field.key, field.text)
            try:
                value = field.read(text)
            except ValueError as error:
                found.append(Change(field, text, problem=str(error)))
                continue
            if compact(value) != compact(field.was):  # 1 and True are equal, but not the same
                found.append(Change(field, text, value))
        return found


@dataclass(frozen=True, slots=True)
class Group:
    """Calls of one function that wait at once; or one call."""

    asks: tuple[Ask, ...]

    @property
    def same(self) -> list[Field]:
        """The arguments that are the same in all."""
        # 1, 1.0, True and "1" differ.
        values = [{(field.name, compact(field.was)) for field in ask.fields} for ask in self.asks]
        in_all = set.intersection(*values)
        return [field for field in self.asks[0].fields if (field.name, compact(field.was)) in in_all]

    @property
    def different(self) -> list[str]:
        """The names of the others."""
        same = {field.name for field in self.same}
        names = (field.name for ask in self.asks for field in ask.fields)
        return [name for name in dict.fromkeys(names) if name not in same]


def _is_data(text: str) -> bool:
    """Whether it reads as JSON that is shown in one line."""
    with suppress(GuestJsonError):
        return parse(clean(text).encode()) in ([], {}) or not text.lstrip().startswith(("[", "{"))
    return False


def _is_plain(text: str) -> bool:
    return not hidden_places(text, "\n\t")

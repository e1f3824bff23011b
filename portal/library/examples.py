"""Calls that a tool's author shows, as a script would write them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from manifests.json_value import Json
from portal.library.function import Parameter
from portal.library.literals import literal_text
from portal.library.schema.sound_schema import SoundSchema
from portal.library.schema.violations import violations
from portal.library.schema.words import is_small_json

LONGEST_EXAMPLE: Final = 300
"""Characters of an example; a longer one teaches less than it costs."""

_MOST_TRIED: Final = 5
_WRAPPERS: Final = ("arguments", "input", "value")


def example_call(
    name: str, parameters: Sequence[Parameter], schema: SoundSchema, sent: Iterable[Json]
) -> str:
    """The first example that fits the tool's own schema: `create_issue(title='Crash')`; "" if none does.

    `sent` are examples of all arguments together: the tool's own, and those of its schema.
    """
    names = {parameter.wire_name: parameter.name for parameter in parameters}
    for arguments in islice(_arguments(sent), _MOST_TRIED):
        if arguments and arguments.keys() <= names.keys() and not violations(schema, arguments):
            given = ", ".join(f"{names[key]}={literal_text(value)}" for key, value in arguments.items())
            if len(name) + len(given) + 2 <= LONGEST_EXAMPLE:
                return f"{name}({given})"
    return ""


def _arguments(sent: Iterable[Json]) -> Iterator[dict[str, Any]]:
    """Objects of arguments, bare or within `arguments`, `input` or OpenAPI's `value`."""
    for each in sent:
        if isinstance(each, dict) and is_small_json(each):
            yield each
            yield from (each[word] for word in _WRAPPERS if isinstance(each.get(word), dict))

"""Names for the types of a stub, from what a schema calls things."""

import re
from typing import Final

LONGEST_TYPE_NAME: Final = 48

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
_GENERIC: Final = frozenset(
    {
        *("Data", "Input", "Item", "Items", "Model", "Object", "Options", "Output", "Params"),
        *("Properties", "Response", "Result", "Root", "Schema", "Value"),
    }
)


def type_name(text: str) -> str:
    """A class name made of the text's ASCII words: `create_issue` -> `CreateIssue`; "" if it has none."""
    words = _WORDS.findall(text[: 4 * LONGEST_TYPE_NAME])
    name = "".join(word[0].upper() + word[1:] for word in words)[:LONGEST_TYPE_NAME]
    return f"Type{name}" if name[:1].isdigit() else name


def is_telling(name: str) -> bool:
    """Whether a type's own title says more than the place it was found at."""
    return len(name) > 1 and name not in _GENERIC


def title_name(title: str | None) -> str:
    """The name that a schema's title gives its type; "" if there is none, or it says nothing."""
    name = type_name(title or "")
    return name if is_telling(name) else ""

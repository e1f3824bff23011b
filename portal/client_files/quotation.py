"""Names out of a client's file within a sentence of ours."""

from typing import Final

from portal.library.hidden_characters import respelt

MOST: Final = 60
"""Characters of a name that are told."""


def quoted(name: str) -> str:
    """Its beginning as it is read, in quotes that it cannot end; spelt out is what nobody would see."""
    escaped = name[:MOST].replace("\\", "\\\\").replace("'", "\\'")
    return f"'{respelt(escaped, lambda character: ascii(character)[1:-1])}'"

"""How many examples a property is tried with: 100 in `scripts/test`, a few in `scripts/check`, or a multiple of it."""

from hypothesis import settings


def depth(times: float) -> settings:
    """So many times the examples of the profile that the script chose (`tests/conftest.py`)."""
    return settings(max_examples=round(times * settings().max_examples))

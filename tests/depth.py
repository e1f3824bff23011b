"""How many examples a property is tried with: those of the profiles of `tests/conftest.py`, or a multiple of them."""

from hypothesis import settings


def depth(times: float) -> settings:
    """So many times the examples of the profile that the script chose (`tests/conftest.py`)."""
    return settings(max_examples=max(1, round(times * settings().max_examples)))

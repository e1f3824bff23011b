"""Does work that is cut into steps in one go, where nobody else waits for a turn."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def at_once(steps: Generator[object, None, T]) -> T:
    """What comes of it."""
    return counted(steps)[0]


def counted(steps: Generator[object, None, T]) -> tuple[T, int]:
    """The same, and after how many steps."""
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value, number
        number += 1

"""What search needs to know of a function; the library's `Function` fits without knowing it."""

from collections.abc import Sequence
from typing import Protocol


class SearchableParameter(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def wire_name(self) -> str: ...
    @property
    def doc(self) -> str: ...


class Searchable(Protocol):
    """A function as search sees it. Its texts are an upstream's own words: hostile and of any length."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def upstream(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Sequence[SearchableParameter]: ...

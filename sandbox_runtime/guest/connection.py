"""Connections of `sqlite3` that keep in memory what SQLite puts into temporary files: an instance can have none."""

import functools
import sqlite3
from collections.abc import Callable
from typing import Any

_IN_MEMORY = ":memory:"
_TEMPORARY = ("", b"")
"""Names of a database that is a temporary file."""

_FACTORY = 4
"""Which of the arguments of `connect` after the database is the class."""


class Connection(sqlite3.Connection):
    """A connection whose sorters, indices and temporary tables count as the script's memory, however large they are."""

    __module__ = "sqlite3"

    def __init__(self, database: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(_IN_MEMORY if database in _TEMPORARY else database, *arguments, **named)
        # No method of the connection: a script's class may have its own, which needs what is not there yet.
        sqlite3.Cursor(self).execute("PRAGMA temp_store = MEMORY").close()


def install() -> None:
    """Have every connection be of this kind."""
    connect = _connect_of(sqlite3.connect)
    for module in (sqlite3, sqlite3.dbapi2):
        vars(module).update(Connection=Connection, connect=connect)


def given_factory(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The class among the arguments of `connect` after the database."""
    return arguments[_FACTORY] if len(arguments) > _FACTORY else named.get("factory", Connection)


def _connect_of(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def connect(database: Any, *arguments: Any, **named: Any) -> Any:
        if len(arguments) <= _FACTORY:
            named.setdefault("factory", Connection)
        return original(database, *arguments, **named)

    return connect

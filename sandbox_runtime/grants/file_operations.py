"""What a guest may ask about files: the words of the exchange, as operations on a workspace."""

import base64
import binascii
from collections.abc import Callable
from typing import TypeAlias

from manifests.json_value import Json
from sandbox_runtime.grants.file_error import FileError, from_os
from sandbox_runtime.grants.file_path import FilePath, parse_path
from sandbox_runtime.grants.workspace import Entry, Workspace
from sandbox_runtime.guest_json import GuestJsonError, encode, parse, values_in

_MAX_VALUES = 20
_NOTHING = b"null"

Operation: TypeAlias = Callable[[Workspace, dict[str, Json]], bytes]
"""Answers JSON."""


def operate(workspace: Workspace, operation: str, arguments: bytes) -> bytes:
    """Do what a guest asks for; arguments and answer are JSON, content is base64.

    Raises:
        FileError: It was not done; why.
    """
    if values_in(arguments, _MAX_VALUES) > _MAX_VALUES:
        raise FileError("EINVAL", "no operation has so many arguments")
    try:
        given = parse(arguments)
    except GuestJsonError as error:
        raise FileError("EINVAL", str(error)) from None
    if operation not in _OPERATIONS or not isinstance(given, dict):
        raise FileError("EINVAL", "there is no such operation")
    try:
        return _OPERATIONS[operation](workspace, given)
    except OSError as error:
        raise from_os(error) from None


def _stat(workspace: Workspace, given: dict[str, Json]) -> bytes:
    return _told(workspace.look(_path(given)))


def _list(workspace: Workspace, given: dict[str, Json]) -> bytes:
    return encode([[name, entry.told()] for name, entry in workspace.listing(_path(given))])


def _read(workspace: Workspace, given: dict[str, Json]) -> bytes:
    content, entry = workspace.read(_path(given))
    return b'["%b",%b]' % (base64.b64encode(content), _told(entry))


def _create(workspace: Workspace, given: dict[str, Json]) -> bytes:
    is_new, entry = workspace.create(_path(given), must_be_new=given.get("must_be_new") is True)
    return encode([is_new, entry.told()])


def _write(workspace: Workspace, given: dict[str, Json]) -> bytes:
    expected = given.get("expected")
    if expected is not None and not isinstance(expected, str):
        raise FileError("EINVAL", "expected is a version")
    return _told(workspace.write(_path(given), _content(given), expected))


def _append(workspace: Workspace, given: dict[str, Json]) -> bytes:
    at = given.get("at")
    if at is not None and type(at) is not int:
        raise FileError("EINVAL", "at is a number of bytes")
    return _told(workspace.append(_path(given), _content(given), at))


def _mkdir(workspace: Workspace, given: dict[str, Json]) -> bytes:
    workspace.make_folder(_path(given))
    return _NOTHING


def _remove(workspace: Workspace, given: dict[str, Json]) -> bytes:
    workspace.remove(_path(given))
    return _NOTHING


def _rmdir(workspace: Workspace, given: dict[str, Json]) -> bytes:
    workspace.remove_folder(_path(given))
    return _NOTHING


def _rename(workspace: Workspace, given: dict[str, Json]) -> bytes:
    workspace.rename(_path(given), _path(given, "target"))
    return _NOTHING


_READING: dict[str, Operation] = {"stat": _stat, "list": _list, "read": _read}
_WRITING: dict[str, Operation] = {
    "create": _create,
    "write": _write,
    "append": _append,
    "mkdir": _mkdir,
    "remove": _remove,
    "rmdir": _rmdir,
    "rename": _rename,
}
_OPERATIONS = _READING | _WRITING


def changes(operation: str) -> bool:
    """Whether an operation may change the workspace."""
    return operation in _WRITING


def _told(entry: Entry) -> bytes:
    return encode(entry.told())


def _path(given: dict[str, Json], key: str = "path") -> FilePath:
    text = given.get(key)
    if not isinstance(text, str):
        raise FileError("EINVAL", f"{key} is text")
    return parse_path(text)


def _content(given: dict[str, Json]) -> bytes:
    text = given.get("base64")
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else _no_content()
    except (binascii.Error, ValueError):
        return _no_content()


def _no_content() -> bytes:
    raise FileError("EINVAL", "content is base64")

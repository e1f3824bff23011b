"""What a guest may ask about files: the words of the exchange, as operations on a workspace."""

import binascii
from collections.abc import Callable
from typing import TypeAlias

from manifests.json_value import Json
from sandbox_runtime.grants.fetch_body import base64_pieces
from sandbox_runtime.grants.file_error import FileError, from_os
from sandbox_runtime.grants.file_path import FilePath, parse_path
from sandbox_runtime.grants.workspace import Entry, Workspace
from sandbox_runtime.guest_json import GuestJsonError, encode, parse, values_in

_MAX_VALUES = 20
_NOTHING = b"null"

_BIG_BYTES = 1 << 16
_DECODED_CHARS = 1 << 20
_CONTENT = b'"base64": "'

Operation: TypeAlias = Callable[[Workspace, dict[str, Json]], bytes]
"""Answers JSON."""

GivingOperation: TypeAlias = Callable[[Workspace, dict[str, Json], bytes], bytes]
"""One that is given content, too."""


def operate(workspace: Workspace, operation: str, arguments: bytes) -> bytes:
    """Do what a guest asks for; arguments and answer are JSON, content is base64.

    Raises:
        FileError: It was not done; why.
    """
    others, content = _apart(arguments)
    if values_in(others, _MAX_VALUES) > _MAX_VALUES:
        raise FileError("EINVAL", "no operation has so many arguments")
    try:
        given = parse(others)
    except GuestJsonError as error:
        raise FileError("EINVAL", str(error)) from None
    if not (operation in _OPERATIONS or operation in _GIVING) or not isinstance(given, dict):
        raise FileError("EINVAL", "there is no such operation")
    try:
        if giving := _GIVING.get(operation):
            return giving(workspace, given, _decoded(_encoded(given, content)))
        return _OPERATIONS[operation](workspace, given)
    except OSError as error:
        raise from_os(error) from None


def _stat(workspace: Workspace, given: dict[str, Json]) -> bytes:
    return _told(workspace.look(_path(given)))


def _list(workspace: Workspace, given: dict[str, Json]) -> bytes:
    return encode([[name, entry.told()] for name, entry in workspace.listing(_path(given))])


def _read(workspace: Workspace, given: dict[str, Json]) -> bytes:
    content, entry = workspace.read(_path(given))
    return b'["%b",%b]' % (b"".join(base64_pieces(content)), _told(entry))


def _create(workspace: Workspace, given: dict[str, Json]) -> bytes:
    is_new, entry = workspace.create(_path(given), must_be_new=given.get("must_be_new") is True)
    return encode([is_new, entry.told()])


def _write(workspace: Workspace, given: dict[str, Json], content: bytes) -> bytes:
    expected = given.get("expected")
    if expected is not None and not isinstance(expected, str):
        raise FileError("EINVAL", "expected is a version")
    return _told(workspace.write(_path(given), content, expected))


def _append(workspace: Workspace, given: dict[str, Json], content: bytes) -> bytes:
    at = given.get("at")
    if at is not None and type(at) is not int:
        raise FileError("EINVAL", "at is a number of bytes")
    return _told(workspace.append(_path(given), content, at))


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
    "mkdir": _mkdir,
    "remove": _remove,
    "rmdir": _rmdir,
    "rename": _rename,
}
_GIVING: dict[str, GivingOperation] = {"write": _write, "append": _append}
_OPERATIONS = _READING | _WRITING


def changes(operation: str) -> bool:
    """Whether an operation may change the workspace."""
    return operation in _WRITING or operation in _GIVING


def _told(entry: Entry) -> bytes:
    return encode(entry.told())


def _path(given: dict[str, Json], key: str = "path") -> FilePath:
    text = given.get(key)
    if not isinstance(text, str):
        raise FileError("EINVAL", f"{key} is text")
    return parse_path(text)


# Nobody else in the process has a turn during one call of C, so none is given many MiB to read, take apart or copy.


def _apart(arguments: bytes) -> tuple[bytes, memoryview]:
    """Arguments without a big content, and that; a small one is left where it is.

    In a text the mark cannot be but after a backslash, and then nothing of this name is left in the arguments.
    """
    start = arguments.find(_CONTENT) + len(_CONTENT) if len(arguments) > _BIG_BYTES else 0
    end = arguments.find(b'"', start) if start >= len(_CONTENT) else -1
    if end < 0:
        return arguments, memoryview(b"")
    return arguments[:start] + arguments[end:], memoryview(arguments)[start:end]


def _encoded(given: dict[str, Json], content: memoryview) -> memoryview:
    text = given.get("base64")
    if not isinstance(text, str) or not text.isascii():
        raise _no_content()
    return memoryview(text.encode()) if text else content


def _decoded(text: memoryview) -> bytes:
    pieces = range(0, len(text), _DECODED_CHARS)
    try:
        return b"".join(
            binascii.a2b_base64(text[start : start + _DECODED_CHARS], strict_mode=True) for start in pieces
        )
    except binascii.Error:
        raise _no_content() from None


def _no_content() -> FileError:
    return FileError("EINVAL", "content is base64")

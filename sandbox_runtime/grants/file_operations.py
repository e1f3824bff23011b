"""What a guest may ask about files: the words of the exchange, as operations on a workspace."""

import binascii
import time
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from manifests.json_value import Json
from sandbox_runtime.grants.file_error import FileError, from_os
from sandbox_runtime.grants.file_path import FilePath, parse_path
from sandbox_runtime.grants.workspace import Content, Entry, Workspace
from sandbox_runtime.guest_json import GuestJsonError, encode, parse, values_in

_MAX_VALUES = 20
_NOTHING = [b"null"]

_BIG_BYTES = 1 << 16
_PIECE_CHARS = 1 << 18
_CONTENT = b'"base64": "'

Told: TypeAlias = list[bytes]
"""JSON, in pieces that nobody has put together."""

_Piece = TypeVar("_Piece", bytes, memoryview)

Operation: TypeAlias = Callable[[Workspace, dict[str, Json]], Told]
GivingOperation: TypeAlias = Callable[[Workspace, dict[str, Json], Content], Told]
"""One that is given content, too."""


def operate(workspace: Workspace, operation: str, arguments: memoryview) -> Told:
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


def _stat(workspace: Workspace, given: dict[str, Json]) -> Told:
    return _told(workspace.look(_path(given)))


def _list(workspace: Workspace, given: dict[str, Json]) -> Told:
    return [encode([[name, entry.told()] for name, entry in workspace.listing(_path(given))])]


def _read(workspace: Workspace, given: dict[str, Json]) -> Told:
    content, entry = workspace.read(_path(given))
    return [b'["', *_each(_in_base64, content), b'",', *_told(entry), b"]"]


def _create(workspace: Workspace, given: dict[str, Json]) -> Told:
    is_new, entry = workspace.create(_path(given), must_be_new=given.get("must_be_new") is True)
    return [encode([is_new, entry.told()])]


def _write(workspace: Workspace, given: dict[str, Json], content: Content) -> Told:
    expected = given.get("expected")
    if expected is not None and not isinstance(expected, str):
        raise FileError("EINVAL", "expected is a version")
    return _told(workspace.write(_path(given), content, expected))


def _append(workspace: Workspace, given: dict[str, Json], content: Content) -> Told:
    at = given.get("at")
    if at is not None and type(at) is not int:
        raise FileError("EINVAL", "at is a number of bytes")
    return _told(workspace.append(_path(given), content, at))


def _mkdir(workspace: Workspace, given: dict[str, Json]) -> Told:
    workspace.make_folder(_path(given))
    return _NOTHING


def _remove(workspace: Workspace, given: dict[str, Json]) -> Told:
    workspace.remove(_path(given))
    return _NOTHING


def _rmdir(workspace: Workspace, given: dict[str, Json]) -> Told:
    workspace.remove_folder(_path(given))
    return _NOTHING


def _rename(workspace: Workspace, given: dict[str, Json]) -> Told:
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


def _told(entry: Entry) -> Told:
    return [encode(entry.told())]


def _path(given: dict[str, Json], key: str = "path") -> FilePath:
    text = given.get(key)
    if not isinstance(text, str):
        raise FileError("EINVAL", f"{key} is text")
    return parse_path(text)


# Nobody else in the process has a turn during one call of C, so none is given many MiB to read, take apart or copy.


def _apart(arguments: memoryview) -> tuple[bytes, memoryview]:
    """Arguments without a big content, and that; a small one is left where it is.

    In a text the mark cannot be but after a backslash, and then nothing of this name is left in the arguments.
    """
    head = bytes(arguments[:_BIG_BYTES])
    start = head.find(_CONTENT) + len(_CONTENT) if len(arguments) > _BIG_BYTES else 0
    end = _quote_after(arguments, start) if start >= len(_CONTENT) else -1
    if end < 0:
        return bytes(arguments), memoryview(b"")
    return head[:start] + bytes(arguments[end:]), arguments[start:end]


def _quote_after(text: memoryview, start: int) -> int:
    for begin in range(start, len(text), _PIECE_CHARS):
        if (found := bytes(text[begin : begin + _PIECE_CHARS]).find(b'"')) >= 0:
            return begin + found
    return -1


def _encoded(given: dict[str, Json], content: memoryview) -> memoryview:
    text = given.get("base64")
    if not isinstance(text, str) or not text.isascii():
        raise _no_content()
    return memoryview(text.encode()) if text else content


def _decoded(text: memoryview) -> Content:
    starts = range(0, len(text), _PIECE_CHARS)
    try:
        return _each(_from_base64, (text[start : start + _PIECE_CHARS] for start in starts))
    except binascii.Error:
        raise _no_content() from None


def _each(work: Callable[[_Piece], bytes], pieces: Iterable[_Piece]) -> list[bytes]:
    done = []
    for piece in pieces:
        done.append(work(piece))
        time.sleep(0)  # who waits for the interpreter would get it only 5 ms later
    return done


def _from_base64(piece: memoryview) -> bytes:
    return binascii.a2b_base64(piece, strict_mode=True)


def _in_base64(piece: bytes) -> bytes:
    return binascii.b2a_base64(piece, newline=False)


def _no_content() -> FileError:
    return FileError("EINVAL", "content is base64")

"""Python processes that know nothing: no environment, no folder, no packages but the engine, no descriptors but one."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import wasmtime

# Appended, so that nothing beside the engine can shadow the standard library.
_BOOT = (
    "import sys; from importlib import import_module; module, folders, *rest = sys.argv[1:]; "
    "sys.path.extend(folders.split(chr(10))); import_module(module).main(rest)"
)


def start(
    module: str, *arguments: str, descriptor: int | None = None, parent: int | None = None
) -> "subprocess.Popen[bytes]":
    """Start `module.main([*arguments, descriptor, parent])` in a process group of its own.

    A group of its own keeps a Ctrl-C at the terminal from reaching it: it ends with its parent, not before.
    """
    rest = [*arguments, *(str(number) for number in (descriptor, parent) if number is not None)]
    with _empty_folder() as folder:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, module, _folders(), *rest],
            env={},
            cwd=folder,
            close_fds=True,
            pass_fds=() if descriptor is None else (descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def passed_on(descriptor: str) -> socket.socket:
    """The socket that a process was started with, under the lowest number there is here: the starting process may have
    thousands of files open, and `select` takes none above 1,023.
    """
    low = os.dup(int(descriptor))
    os.close(int(descriptor))
    return socket.socket(fileno=low)


@contextmanager
def _empty_folder() -> Iterator[str]:
    """One that is gone once it is left: who works there finds nothing, and can make nothing."""
    try:
        folder = tempfile.mkdtemp()
    except OSError:
        yield "/"
        return
    try:
        yield folder
    finally:
        os.rmdir(folder)


def _folders() -> str:
    ours = Path(__file__).resolve().parents[1]
    engine = Path(wasmtime.__file__).resolve().parents[1]
    return "\n".join(dict.fromkeys((str(ours), str(engine))))

"""Python processes that know nothing: no environment, no site packages but the engine, no descriptors but one."""

import subprocess
import sys
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
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, module, _folders(), *rest],
        env={},
        cwd="/",
        close_fds=True,
        pass_fds=() if descriptor is None else (descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _folders() -> str:
    ours = Path(__file__).resolve().parents[1]
    engine = Path(wasmtime.__file__).resolve().parents[1]
    return "\n".join(dict.fromkeys((str(ours), str(engine))))

"""The process that compiles the guest component ahead of time."""

import os
import sys
from typing import Final

from sandbox_runtime.engine import compile_component
from sandbox_runtime.parent import end_with_parent

NOT_WRITTEN: Final = 74
"""The status that says it compiled, but the disk did not take it; EX_IOERR of sysexits.h."""


def main(arguments: list[str]) -> None:
    """Compile: the component, the file to write, which is complete on disk at the end, process id of the portal."""
    component, target, parent = arguments
    end_with_parent(int(parent))
    with open(component, "rb") as source:
        compiled = compile_component(source.read())
    try:
        with open(target, "wb") as file:
            file.write(compiled)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        sys.exit(NOT_WRITTEN)

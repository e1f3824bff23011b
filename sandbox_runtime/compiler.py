"""The process that compiles the guest component ahead of time."""

import os

from sandbox_runtime.engine import compile_component


def main(arguments: list[str]) -> None:
    """Compile one file into another, which is complete on disk when this returns."""
    component, target = arguments
    with open(component, "rb") as source:
        compiled = compile_component(source.read())
    with open(target, "wb") as file:
        file.write(compiled)
        file.flush()
        os.fsync(file.fileno())

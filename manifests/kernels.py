"""The kernels: what runs scripts, each in its own language, under one capability manifest."""

from typing import Final, Literal, TypeAlias

KernelName: TypeAlias = Literal["python", "javascript"]

PYTHON: Final[KernelName] = "python"
"""The default, which is always on."""

JAVASCRIPT: Final[KernelName] = "javascript"
"""JavaScript and TypeScript."""

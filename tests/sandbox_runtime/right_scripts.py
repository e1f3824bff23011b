"""Scripts that are right as they stand: each one runs as it was given, and must not be changed.

Scripts are parted by lines of dashes; `git.f(x=1)` gives `{"x": 1}`.
"""

import asyncio
import contextlib
import sys
import types
from typing import Any

import pytest

from sandbox_runtime.guest.script import Script


class Git(types.ModuleType):
    """Stands for a namespace of the library: every function gives its arguments back."""

    def __getattr__(self, name: str) -> Any:
        async def function(**arguments: Any) -> dict[str, Any]:
            return arguments

        return function


def scripts(table: str) -> list[str]:
    return table.strip("\n").split("\n---\n")


def run_unchanged(text: str) -> None:
    """Parse a script, see that nothing was inserted, and run it with the library."""
    script = Script.parse(text, frozenset({"git"}))
    assert script.source == text
    assert script.notices == []
    git, tools = Git("git"), types.ModuleType("tools")
    tools.git = git  # type: ignore[attr-defined]
    own = {"git": git, "tools": tools, "asyncio": asyncio, "types": types, "contextlib": contextlib}
    with pytest.MonkeyPatch.context() as modules:
        modules.setitem(sys.modules, "tools", tools)
        modules.setitem(sys.modules, "tools.git", git)
        script.run(own, asyncio.run)

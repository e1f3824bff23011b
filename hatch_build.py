"""Builds the sandbox's guest component as part of the package build; see sandbox_runtime/build_guest.py."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GuestBuildHook(BuildHookInterface[Any]):
    """Makes sure that sandbox_runtime/guest.wasm is what its sources give before a wheel is packed."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs; nothing when the component is there already, so that it can be brought along."""
        build = self._build()
        return [] if self.target_name != "wheel" or build.is_current else list(self._module().REQUIREMENTS)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build = self._build()
        if self.target_name == "wheel" and not build.is_current:
            build.build(self.app.display_waiting)

    def _build(self) -> Any:
        return self._module().GuestBuild(Path(self.root) / "sandbox_runtime")

    def _module(self) -> ModuleType:
        # The package is not installed while it is being built.
        sys.path.insert(0, self.root)
        try:
            return importlib.import_module("sandbox_runtime.build_guest")
        finally:
            sys.path.remove(self.root)

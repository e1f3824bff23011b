"""Builds the sandbox's components as part of the package build; see sandbox_runtime/build_guest.py and build_js.py."""

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GuestBuildHook(BuildHookInterface[Any]):
    """Makes sure that sandbox_runtime/*.wasm are what their sources give before a wheel is packed."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs; nothing when the components are there already, so that they can be brought along."""
        return [requirement for build in self._outdated() for requirement in build.requirements]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda build: build.build(self.app.display_waiting), self._outdated()))

    def _outdated(self) -> list[Any]:
        """The builds that this wheel needs."""
        if self.target_name != "wheel":
            return []
        # The package is not installed while it is being built.
        sys.path.insert(0, self.root)
        try:
            package = Path(self.root) / "sandbox_runtime"
            guest, js = (
                import_module("sandbox_runtime.build_guest"),
                import_module("sandbox_runtime.build_js"),
            )
        finally:
            sys.path.remove(self.root)
        return [build for build in (guest.GuestBuild(package), js.JsBuild(package)) if not build.is_current]

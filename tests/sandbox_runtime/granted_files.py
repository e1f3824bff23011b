"""Runs scripts that are granted a folder of the test's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manifests.grants import FileGrant
from manifests.json_value import Json
from sandbox_runtime.grants.files import Workspaces, open_workspaces
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Session
from tests.sandbox_runtime.running import Runner, where


@dataclass(frozen=True)
class FileRunner:
    """Runs each script as the portal does: with the files of its session, or its own."""

    run: Runner
    folder: Path
    workspaces: Workspaces

    async def __call__(self, script: str, session: Session | None = None, **more: Any) -> RunResult:
        async with self.workspaces.files(session) as files:
            return await self.run(script, session=session, grants=RunGrants(files=files), **more)

    async def value(self, script: str, session: Session | None = None) -> Json:
        result = await self(script, session)
        assert result.error is None, result.error
        return result.value

    async def error(self, script: str) -> str:
        """The error of a script that must fail."""
        result = await self(script)
        assert result.error is not None, result.value
        return result.error.message

    def names(self) -> list[str]:
        """All files and folders that there are, as paths, with those of the portal itself."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))


@asynccontextmanager
async def granted(run: Runner, folder: Path, **grant: Any) -> AsyncIterator[FileRunner]:
    """Grant `folder` for writing, unless `grant` says otherwise."""
    wanted = FileGrant(workspace=str(folder), **{"mode": "write", **grant})
    async with open_workspaces(wanted, folder, where) as workspaces:
        yield FileRunner(run, folder, workspaces)

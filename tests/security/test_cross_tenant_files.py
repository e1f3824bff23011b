"""Whatever a script of one tenant asks the host for, the files of another are neither told of nor touched."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from manifests.grants import NO_TENANT, FileGrant
from manifests.json_value import Json
from sandbox_runtime.grants.files import Workspaces, open_workspaces
from sandbox_runtime.grants.run_grants import RunGrants
from tests.sandbox_runtime.running import Runner, where
from tests.security.hostile import ON_ONE_PATH, RAW_FILES

pytestmark = pytest.mark.anyio

FLAG = "flag-of-anna"
PATHS = [
    "../anna/flag.txt",
    "../anna",
    "..",
    "../../data/anna/flag.txt",
    "anna/flag.txt",
    "/anna/flag.txt",
    "/workspace/anna/flag.txt",
    "./../anna/flag.txt",
    "own.txt/../../anna/flag.txt",
    "..\\anna\\flag.txt",
    "%2e%2e/anna/flag.txt",
    "．．/anna/flag.txt",
    "..\u200b/anna/flag.txt",
    "..\0/anna/flag.txt",
    "\ud800../anna/flag.txt",
    "folder/../../anna/flag.txt",
    "../_nobody/flag.txt",
    "../anna/",
    "//anna/flag.txt",
    "~anna/flag.txt",
]


@dataclass(frozen=True)
class Tenants:
    run: Runner
    folder: Path
    workspaces: Workspaces

    async def value(self, tenant: str | None, script: str) -> Json:
        async with self.workspaces.files(None, tenant) as files:
            result = await self.run(script, grants=RunGrants(files=files))
        assert result.error is None, result.error
        return result.value

    def contents(self, tenant: str) -> dict[str, str]:
        return {path.name: path.read_text() for path in (self.folder / tenant).rglob("*") if path.is_file()}


@pytest.fixture
async def tenants(run: Runner, tmp_path: Path) -> AsyncIterator[Tenants]:
    folder = tmp_path / "data"
    folder.mkdir()
    grant = FileGrant(workspace=str(folder), mode="write", share="tenant")
    async with open_workspaces(grant, folder, where) as workspaces:
        tenants = Tenants(run, folder, workspaces)
        for tenant in ("anna", None):
            await tenants.value(tenant, f'open("flag.txt", "w").write("{FLAG}")')
        await tenants.value("bert", 'import os\nopen("own.txt", "w").write("own")\nos.mkdir("folder")')
        yield tenants


@pytest.mark.parametrize("operation", ON_ONE_PATH)
async def test_no_path_that_is_asked_for_leads_to_another_tenant(tenants: Tenants, operation: str) -> None:
    """Of what is asked for some is a name in the asker's own folder; the twin is a file that is there."""
    more = ON_ONE_PATH[operation]
    asking = f"[raw({operation!r}, {{'path': path, **{more!r}}}) for path in {PATHS!r}]"
    told = await tenants.value("bert", f"{RAW_FILES}{asking}")
    assert FLAG not in json.dumps(told)
    assert "flag.txt" not in json.dumps(told)
    assert tenants.contents("anna") == tenants.contents(NO_TENANT) == {"flag.txt": FLAG}
    assert sorted(path.name for path in tenants.folder.iterdir()) == [NO_TENANT, "anna", "bert"]
    assert await tenants.value("bert", f"{RAW_FILES}raw('stat', {{'path': 'own.txt'}})[1]") == 1
    assert await tenants.value("anna", 'open("flag.txt").read()') == FLAG


async def test_nothing_is_renamed_from_one_tenant_to_another(tenants: Tenants) -> None:
    renaming = (
        f"[raw('rename', {{'path': a, 'target': b}})[1] for path in {PATHS!r}"
        " for a, b in (('own.txt', path), (path, 'got.txt')) if path != 'anna/flag.txt']"
    )
    told = await tenants.value("bert", f"{RAW_FILES}{renaming}")
    assert isinstance(told, list)
    assert FLAG not in "".join(tenants.contents("bert").values())
    assert tenants.contents("anna") == {"flag.txt": FLAG}
    renamed = "raw('rename', {'path': 'folder', 'target': 'other'})[1]"
    assert await tenants.value("bert", f"{RAW_FILES}{renamed}") == 1


async def test_quota_of_one_tenant_is_not_used_up_by_another(run: Runner, tmp_path: Path) -> None:
    grant = FileGrant(workspace=str(tmp_path), mode="write", share="tenant", total_bytes=1000, total_files=3)
    fill = (
        'import os\nfor n in "abcdef":\n    try:\n        open(n, "w").close()\n    except OSError:\n        pass\n'
        "len(os.listdir())"
    )
    async with open_workspaces(grant, tmp_path, where) as workspaces:
        tenants = Tenants(run, tmp_path, workspaces)
        assert await tenants.value("anna", fill) == 3
        assert await tenants.value("bert", fill) == 3
        assert await tenants.value(None, fill) == 3

"""A script that is granted a folder reaches nothing else of this machine, and no files of another tenant, whatever lies
in it and whatever it sends. Each attack prints a marker after its attacking line, and has a harmless twin.
"""

import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from manifests.grants import NO_TENANT, FileGrant
from manifests.json_value import Json
from sandbox_runtime.grants.files import Workspaces, open_workspaces
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.sandbox import Session
from tests.sandbox_runtime.granted_files import FileRunner, granted
from tests.sandbox_runtime.running import Runner, where
from tests.security.hostile import ON_ONE_PATH, RAW_FILES, words

pytestmark = pytest.mark.anyio

FLAG = "flag-5b1c9e"
INSIDE = "inside"

TRYING = """
def trying(do):
    try:
        told = do()
    except BaseException as error:
        told = f"{type(error).__name__}: {error}"
    print("reached")
    return told
"""
RAW = RAW_FILES + TRYING


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "flag.txt").write_text(FLAG)
    return folder


@pytest.fixture
async def files(run: Runner, tmp_path: Path, outside: Path) -> AsyncIterator[FileRunner]:
    """A workspace in which an operator has left everything that could lead out of it."""
    folder = tmp_path / "workspace"
    (folder / "folder").mkdir(parents=True)
    (folder / "inside.txt").write_text(INSIDE)
    (folder / "folder" / "inside.txt").write_text(INSIDE)
    (folder / "link.txt").symlink_to(outside / "flag.txt")
    (folder / "near.txt").symlink_to("inside.txt")
    (folder / "linked").symlink_to(outside)
    (folder / "up").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to(outside / "new.txt")
    os.link(outside / "flag.txt", folder / "hard.txt")
    os.mkfifo(folder / "pipe")
    make_socket(folder / "socket")
    async with granted(run, folder) as files:
        yield files


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(path))  # the whole path is too long for an address


def intact(outside: Path) -> bool:
    return {path.name: path.read_text() for path in outside.iterdir()} == {"flag.txt": FLAG}


BY_PYTHON = {
    "parent": 'open("../outside/flag.txt").read()',
    "absolute": 'open(OUTSIDE + "/flag.txt").read()',
    "the process": 'open("/proc/self/environ").read()',
    "link": 'open("link.txt").read()',
    "linked folder": 'open("linked/flag.txt").read()',
    "link to the parent": 'open("up/outside/flag.txt").read()',
    "listing through a link": 'import os; os.listdir("linked")',
    "writing through a link": 'open("link.txt", "w").write("pwned")',
    "writing through a dangling link": 'f = open("dangling", "w"); f.write("pwned"); f.close()',
    "removing through a link": 'import os; os.remove("linked/flag.txt")',
    "renaming out": 'import os; os.rename("inside.txt", "linked/inside.txt")',
    "making a link": 'import os; os.symlink(OUTSIDE, "mine"); open("mine/flag.txt").read()',
    "making a hard link": 'import os; os.link(OUTSIDE + "/flag.txt", "mine"); open("mine").read()',
    "reading a link": 'import os; os.readlink("link.txt")',
    "writing to a hard link": 'f = open("hard.txt", "w"); f.write("pwned"); f.close()',
    "changing directory": 'import os; os.chdir("linked"); open("flag.txt").read()',
    "pipe": 'open("pipe").read()',
    "database": 'import sqlite3; sqlite3.connect("linked/f.db").execute("create table t(x)").connection.commit()',
    "attached database": 'import sqlite3; sqlite3.connect("f.db").execute("attach ? as o", [OUTSIDE + "/o.db"])',
    "archive with parents": (
        'import zipfile; z = zipfile.ZipFile("z.zip", "w"); z.writestr("../../outside/z.txt", "x"); z.close(); '
        'zipfile.ZipFile("z.zip").extractall(".")'
    ),
    "archive with links": (
        'import tarfile, io; t = tarfile.open("t.tar", "w"); i = tarfile.TarInfo("l"); i.type = tarfile.SYMTYPE; '
        'i.linkname = OUTSIDE; t.addfile(i); t.close(); tarfile.open("t.tar").extractall(".", filter="fully_trusted"); '
        'open("l/flag.txt").read()'
    ),
    "deleting the workspace": 'import shutil; shutil.rmtree("/workspace"); 1',
    "renaming the workspace": 'import os; os.rename("/workspace", "/workspace/folder/w")',
}
HARMLESS = (
    'import os; os.mkdir("new"); f = open("new/a", "w"); f.write("x"); f.close(); f = open("new/a", "a"); '
    'f.write("y"); f.close(); os.rename("new/a", "b"); r = [open("b").read(), os.listdir("new")]; '
    'os.remove("b"); os.rmdir("new"); r'
)


def as_function(statements: str) -> str:
    *before, last = statements.split("; ")
    body = "\n    ".join([*before, f"return {last}" if not last.startswith("f.") else last])
    return f"def attack():\n    {body}\n"


@pytest.mark.parametrize("name", BY_PYTHON)
async def test_python_leads_nowhere_else(files: FileRunner, outside: Path, name: str) -> None:
    attack = f"OUTSIDE = {str(outside)!r}\n{TRYING}\n{as_function(BY_PYTHON[name])}trying(attack)"
    result = await files(attack)
    assert (result.error, "reached" in result.stdout) == (None, True)
    assert FLAG not in json.dumps(result.value)
    assert intact(outside)
    if name != "deleting the workspace":
        twin = await files(f"{TRYING}\n{as_function(HARMLESS)}trying(attack)")
        assert twin.value == ["xy", []]
        assert await files.value('open("inside.txt").read()') == INSIDE


async def test_deleting_everything_deletes_what_scripts_see(files: FileRunner, outside: Path) -> None:
    await files('import shutil\nshutil.rmtree("/workspace", ignore_errors=True)')
    assert intact(outside)
    assert "linked" in files.names() and "inside.txt" not in files.names()


PATHS = [
    *words("../outside/flag.txt /etc/passwd .. ./inside.txt inside.txt\0.png \u202etxt.edisni .\u200b."),
    *words(".portal-0123456789abcdef linked/flag.txt up/outside/flag.txt pipe"),
    "x" * 256,
    "x" * 100_000,
    "/".join(["folder"] * 10_000),
]

OPERATIONS = (*ON_ONE_PATH.items(), ("rename", {"target": "t"}))
EVERY_OPERATION = f"""{RAW}
def every_operation(path):
    told = [trying(lambda: raw(name, {{"path": path, **more}})) for name, more in {OPERATIONS!r}]
    return [*told, raw("rename", {{"path": "folder/inside.txt", "target": path}})]
"""


@pytest.mark.parametrize("path", PATHS, ids=lambda path: repr(path)[:40])
async def test_path_that_no_guest_would_send_is_refused(files: FileRunner, outside: Path, path: str) -> None:
    before = files.names()
    sent = json.dumps(json.dumps(path))
    result = await files(
        f'{EVERY_OPERATION}\n[every_operation(json.loads({sent})), raw("read", {{"path": "inside.txt"}})]'
    )
    assert (result.error, result.stdout.count("reached")) == (None, len(OPERATIONS))
    told, twin = result.value
    assert {answer[1] for answer in told} == {0}
    assert FLAG not in json.dumps(told)
    assert files.names() == before
    assert intact(outside)
    assert twin[1] == 1


@pytest.mark.parametrize(
    "name", ["..\\outside\\flag.txt", "..\u2215outside\u2215flag.txt", "~root", "C:x", "\ud800", "ä" * 127]
)
async def test_name_that_looks_like_a_way_out_is_a_name(files: FileRunner, outside: Path, name: str) -> None:
    sent = json.dumps(json.dumps(name))
    result = await files(f"{EVERY_OPERATION}\n[answer[1] for answer in every_operation(json.loads({sent}))]")
    assert (result.error, result.value) == (None, [0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1])
    assert intact(outside)
    assert files.names() != []


FORGED = (
    *(
        ("read", each)
        for each in ("not json", "{}", '{"path": null}', '{"path": ["inside.txt"]}', "[" * 10_000)
    ),
    *((each, '{"path": "inside.txt"}') for each in ("", "__class__", "../read")),
    ("write", '{"path": "inside.txt", "base64": "%%%"}'),
    ("write", '{"path": "inside.txt", "base64": 7}'),
    ("write", '{"path": "inside.txt", "base64": "eA==", "expected": 7}'),
    ("append", '{"path": "inside.txt", "base64": "eA==", "at": "7"}'),
    ("write", '{"path": "inside.txt", "base64": "eA==", "more": 7}'),
)


@pytest.mark.parametrize(("operation", "arguments"), FORGED)
async def test_forged_operation_only_ends_the_run(files: FileRunner, operation: str, arguments: str) -> None:
    before = files.names()
    result = await files(f"{RAW}\nprint('reached')\nraw({operation!r}, {arguments!r})")
    assert (result.error.code, result.stdout) == ("worker_lost", "reached\n")
    assert files.names() == before
    assert await files.value('open("inside.txt").read()') == INSIDE


@pytest.mark.parametrize("operation", ["read", "write", "stat", "list"])
async def test_raw_operation_without_a_grant_is_refused(run: Runner, operation: str) -> None:
    result = await run(f"{RAW}\nraw({operation!r}, {{'path': 'x', 'base64': ''}})[1:3]")
    assert (result.error, result.value) == (None, [0, "not_granted"])


class Swapping:
    """Somebody who makes names stand for what is inside and for links to the outside in turns, as fast as they can."""

    def __init__(self, folder: Path, outside: Path) -> None:
        self._folder = folder
        self._outside = outside
        (folder / "kept").mkdir()
        (folder / "kept" / "flag.txt").write_text(INSIDE)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._swap)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _swap(self) -> None:
        kept, swapped, spare = (self._folder / name for name in ("kept", "swapped", "spare"))
        file = self._folder / "swapped.txt"
        while not self._is_over.is_set():
            kept.rename(swapped)
            spare.write_text(INSIDE)
            spare.rename(file)
            swapped.rename(kept)
            spare.symlink_to(self._outside)
            spare.rename(swapped)
            spare.symlink_to(self._outside / "flag.txt")
            spare.rename(file)
            swapped.unlink()


@pytest.fixture
def swapping(files: FileRunner, outside: Path) -> Iterator[None]:
    with Swapping(files.folder, outside):
        yield


RACING = """
import collections
seen = collections.Counter()
for n in range(300):
    try:
        {do}
        seen["done"] += 1
    except OSError as error:
        seen[type(error).__name__] += 1
print("reached")
dict(seen)
"""

RACES = [
    f'assert open("swapped/flag.txt").read() == "{INSIDE}"',
    f'assert open("swapped.txt").read() == "{INSIDE}"',
    'open("swapped/new.txt", "x").close()',
    'f = open("swapped.txt", "w"); f.write("pwned"); f.close()',
    'f = open("swapped.txt", "a"); f.write("pwned"); f.close()',
    'import os; os.remove("swapped/flag.txt")',
]


@pytest.mark.parametrize("do", RACES)
async def test_nobody_wins_a_race_against_a_link(
    files: FileRunner, swapping: None, outside: Path, do: str
) -> None:
    result = await files(RACING.format(do=do))
    assert (result.error, result.stdout) == (None, "reached\n")
    assert sum(result.value.values()) == 300
    assert intact(outside)


async def test_session_does_not_reach_the_files_of_another(
    run: Runner, session: Session, tmp_path: Path
) -> None:
    async with granted(run, tmp_path, share="session") as files:
        await files.value(f'open("secret.txt", "w").write("{FLAG}")', session)
        (own,) = [name for name in files.names() if name.endswith("secret.txt")]
        attacks = [own, f"../{own}", f"../../{own}", f"../{own.split('/')[1]}/secret.txt"]
        for path in attacks:
            result = await files(f"{TRYING}\ntrying(lambda: open({path!r}).read())")
            assert FLAG not in json.dumps(result.value) and result.stdout
            result = await files(f"{RAW}\nraw('read', {{'path': {path!r}}})")
            assert result.value[1] == 0
        assert await files.value('open("secret.txt").read()', session) == FLAG


OTHERS = words(
    """
    ../anna/flag.txt ../anna .. ../../data/anna/flag.txt anna/flag.txt /anna/flag.txt /workspace/anna/flag.txt
    ./../anna/flag.txt own.txt/../../anna/flag.txt ..\\anna\\flag.txt %2e%2e/anna/flag.txt ．．/anna/flag.txt
    ..\u200b/anna/flag.txt ..\0/anna/flag.txt \ud800../anna/flag.txt folder/../../anna/flag.txt ../_nobody/flag.txt
    ../anna/ //anna/flag.txt ~anna/flag.txt
    """
)


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
    asking = f"[raw({operation!r}, {{'path': path, **{more!r}}}) for path in {OTHERS!r}]"
    told = await tenants.value("bert", f"{RAW_FILES}{asking}")
    assert FLAG not in json.dumps(told)
    assert "flag.txt" not in json.dumps(told)
    assert tenants.contents("anna") == tenants.contents(NO_TENANT) == {"flag.txt": FLAG}
    assert sorted(path.name for path in tenants.folder.iterdir()) == [NO_TENANT, "anna", "bert"]
    assert await tenants.value("bert", f"{RAW_FILES}raw('stat', {{'path': 'own.txt'}})[1]") == 1
    assert await tenants.value("anna", 'open("flag.txt").read()') == FLAG


async def test_nothing_is_renamed_from_one_tenant_to_another(tenants: Tenants) -> None:
    renaming = (
        f"[raw('rename', {{'path': a, 'target': b}})[1] for path in {OTHERS!r}"
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
    fill = 'import os\nfor n in "abcdef":\n    try:\n        open(n, "w").close()\n    except OSError:\n        pass\n'
    fill += "len(os.listdir())"
    async with open_workspaces(grant, tmp_path, where) as workspaces:
        tenants = Tenants(run, tmp_path, workspaces)
        assert await tenants.value("anna", fill) == 3
        assert await tenants.value("bert", fill) == 3
        assert await tenants.value(None, fill) == 3

import ast
import inspect
import subprocess
import sysconfig
from pathlib import Path

from manifests.grants import FETCH
from portal.calls.run import LISTED, SEARCHED, WAITED
from portal.library.library import PORTAL_STUB, Library, write_stubs
from sandbox_runtime.guest.calls import Calls, Output
from sandbox_runtime.guest.portal_module import PortalModule
from sandbox_runtime.guest.warm_up import WarmUpHost
from tests.portal.library.sample_tools import arguments, library, tool

TEXT = {"type": "string"}
ISSUE = {"type": "object", "title": "Issue", "properties": {"title": TEXT}, "required": ["title"]}


def type_errors(folder: Path) -> list[str]:
    """What ty finds in a folder, one line each."""
    ty = str(Path(sysconfig.get_path("scripts"), "ty"))
    command = [ty, "check", "--output-format", "concise", "--no-progress", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    return [line for line in done.stdout.splitlines() if ": error[" in line or ": warning[" in line]


def test_stubs_resolve_by_each_kind_of_import(tmp_path: Path) -> None:
    create = tool(
        "create_issue", arguments(("title",), title=TEXT, labels={"type": "array", "items": TEXT}), ISSUE
    )
    write_stubs(library(create, tool("_private")), tmp_path)
    script = tmp_path / "script.py"
    script.write_text(
        "import tickets\n"
        "from tools import tickets as again\n"
        "from tools.tickets import create_issue\n"
        "async def main() -> None:\n"
        "    a: str = (await tickets.create_issue(title='x', labels=None))['title']\n"
        "    b: str = (await again.create_issue(title='x', labels=['y']))['title']\n"
        "    c: str = (await create_issue(title='x'))['title']\n"
        "    await tickets._private()\n"
    )
    assert type_errors(tmp_path) == []
    script.write_text(
        "from tools import tickets\n"
        "async def main() -> None:\n"
        "    await tickets.create_issue()\n"
        "    await tickets.create_issue(title=3)\n"
        "    await tickets.create_issue(title='x', lables=[])\n"
        "    (await tickets.create_issue(title='x'))['titel']\n"
        "    await tickets.create_isue(title='x')\n"
    )
    assert [int(line.split(":")[1]) for line in type_errors(tmp_path)] == [3, 4, 5, 6, 7]


def test_what_the_portal_itself_offers_is_typed(tmp_path: Path) -> None:
    write_stubs(library(tool("f")), tmp_path)
    script = tmp_path / "script.py"
    script.write_text(
        "import portal\n"
        "async def main() -> bytes:\n"
        "    answer = await portal.fetch('https://a.example', method='POST', json={'a': 1}, headers={'A': 'b'})\n"
        "    length: int = len(answer.text) + answer.status + answer.raise_for_status().json()['n']\n"
        "    portal.emit({'type': 'text', 'text': answer.headers['content-type'] * length})\n"
        "    await portal.sleep(1, hours=0.5)\n"
        "    deployed = (await portal.event('deployed', timeout=60))['version']\n"
        "    url: str = await portal.event_url('deployed') + portal.run.id\n"
        "    is_approved: bool = await portal.approve(f'really? {deployed} {url}')\n"
        "    kept = (await portal.recall('kept_1')).anything\n"
        "    first: int = (await portal.search_text('kept_1', 'error', limit=1))[0]['position']\n"
        "    print(is_approved, kept, first)\n"
        "    return answer.bytes\n"
    )
    assert type_errors(tmp_path) == []
    script.write_text(
        "import portal\n"
        "async def main() -> None:\n"
        "    await portal.fetch()\n"
        "    await portal.fetch('https://a.example', verb='POST')\n"
        "    portal.fetch('https://a.example').json()\n"
        "    (await portal.fetch('https://a.example')).body\n"
        "    await portal.sleep(weeks=1)\n"
        "    x: int = await portal.event_url('deployed')\n"
        "    (await portal.search_text('kept_1', 'error'))[0]['at']\n"
        "    portal.run.id = 'x'\n"
    )
    assert [int(line.split(":")[1]) for line in type_errors(tmp_path)] == [3, 4, 5, 6, 7, 8, 9, 10]


def test_stubs_of_the_portal_s_functions_have_the_parameters_of_the_functions() -> None:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    stubs = {each.name: each for each in ast.parse(PORTAL_STUB).body if isinstance(each, kinds)}
    host = WarmUpHost()
    portal = PortalModule(host, Calls(host, Output(host)))
    functions = {name for name in dir(portal) if name.islower()} - {"run"}
    assert stubs.keys() == functions
    asked = {f"portal.{name}" for name, each in stubs.items() if isinstance(each, ast.AsyncFunctionDef)}
    assert asked == {FETCH} | SEARCHED | LISTED | WAITED
    for name, stub in stubs.items():
        told = [each.arg for each in (*stub.args.args, *stub.args.kwonlyargs)]
        assert told == list(inspect.signature(getattr(portal, name)).parameters)


def test_stub_package_is_complete(tmp_path: Path) -> None:
    changed = write_stubs(library(tool("f")), tmp_path)
    names = {"tools/__init__.pyi", "tools/py.typed", "tools/tickets.pyi", "tickets.pyi", "portal.pyi"}
    assert {path.relative_to(tmp_path).as_posix() for path in changed} == names
    assert all((tmp_path / name).exists() for name in names)


def test_stubs_of_a_former_library_are_removed(tmp_path: Path) -> None:
    write_stubs(library(tool("f")), tmp_path)
    changed = write_stubs(Library.compile([]), tmp_path)
    assert {tmp_path / "tickets.pyi", tmp_path / "tools" / "tickets.pyi"} <= changed
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["__init__.pyi", "portal.pyi", "py.typed"]


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "own.pyi"
    own.write_text("x: int\n")
    empty = [tmp_path / "__init__.pyi", tmp_path / "mine.pyi", tmp_path / "tools" / "mine.pyi"]
    for path in empty:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    write_stubs(library(tool("f")), tmp_path)
    write_stubs(Library.compile([]), tmp_path)
    assert own.read_text() == "x: int\n"
    assert all(path.exists() for path in empty)

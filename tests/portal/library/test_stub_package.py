"""Stubs: what a type checker makes of them, the files that hold them, and text of strangers in them."""

import ast
import inspect
import subprocess
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.grants import FETCH
from portal.base.plain_text import comment, docstring, first_sentence, readable
from portal.calls.run import LISTED, SEARCHED, WAITED
from portal.library.library import PORTAL_STUB, Library, write_stubs
from sandbox_runtime.guest.calls import Calls, Output
from sandbox_runtime.guest.portal_module import PortalModule
from sandbox_runtime.guest.warm_up import WarmUpHost
from tests.portal.library.sample_tools import function, library, stub, tool


def type_errors(folder: Path) -> list[str]:
    """The errors that ty finds in a folder, one line each."""
    ty = str(Path(sysconfig.get_path("scripts"), "ty"))
    command = [ty, "check", "--output-format", "concise", "--no-progress", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    return [line for line in done.stdout.splitlines() if ": error[" in line or ": warning[" in line]


RIGHT = """
import portal, tickets
async def main() -> bytes:
    await tickets._private()
    answer = await portal.fetch('https://a.example', method='POST', json={'a': 1}, headers={'A': 'b'})
    length: int = len(answer.text) + answer.status + answer.raise_for_status().json()['n']
    portal.emit({'type': 'text', 'text': answer.headers['content-type'] * length})
    await portal.sleep(1, hours=0.5)
    deployed = (await portal.event('deployed', timeout=60))['version']
    url: str = await portal.event_url('deployed') + portal.run.id
    is_approved: bool = await portal.approve(f'really? {deployed} {url}')
    print(is_approved, (await portal.recall('kept_1')).anything)
    first: int = (await portal.search_text('kept_1', 'error', limit=1))[0]['position']
    return answer.bytes[first:]
"""
WRONG = """
import portal
async def main() -> None:
    await portal.fetch()
    await portal.fetch('https://a.example', verb='POST')
    portal.fetch('https://a.example').json()
    (await portal.fetch('https://a.example')).body
    await portal.sleep(weeks=1)
    x: int = await portal.event_url('deployed')
    (await portal.search_text('kept_1', 'error'))[0]['at']
    portal.run.id = 'x'
"""


def test_stubs_of_the_portal_tell_a_type_checker_what_is_right(tmp_path: Path) -> None:
    """Those of tools do so in tests/portal/cli/test_stubs_in_an_editor.py, by each kind of import."""
    write_stubs(library(tool("_private")), tmp_path)
    script = tmp_path / "script.py"
    script.write_text(RIGHT)
    assert type_errors(tmp_path) == []
    script.write_text(WRONG)
    assert [int(line.split(":")[1]) for line in type_errors(tmp_path)] == [*range(4, 12)]


def test_stubs_of_the_portal_s_functions_have_the_parameters_of_the_functions() -> None:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    stubs = {each.name: each for each in ast.parse(PORTAL_STUB).body if isinstance(each, kinds)}
    host = WarmUpHost()
    portal = PortalModule(host, Calls(host, Output(host)))
    functions = {name for name in dir(portal) if name.islower()} - {"run"}
    assert stubs.keys() == functions
    asked = {f"portal.{name}" for name, each in stubs.items() if isinstance(each, ast.AsyncFunctionDef)}
    assert asked == {FETCH} | SEARCHED | LISTED | WAITED
    for name, own in stubs.items():
        told = [each.arg for each in (*own.args.args, *own.args.kwonlyargs)]
        assert told == list(inspect.signature(getattr(portal, name)).parameters)


def names_of(paths: Iterable[Path], folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in paths}


def test_stub_package_is_complete_and_of_one_library_and_leaves_files_of_others_alone(tmp_path: Path) -> None:
    own = {"tools/__init__.pyi", "tools/py.typed", "portal.pyi"}
    of_f = {"tools/tickets.pyi", "tickets.pyi"}
    (tmp_path / "tools").mkdir()
    others = {"own.pyi": "x: int\n", "__init__.pyi": "", "mine.pyi": "", "tools/mine.pyi": ""}
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    assert names_of(write_stubs(library(tool("f")), tmp_path), tmp_path) == own | of_f
    assert names_of(tmp_path.rglob("*.*"), tmp_path) == own | of_f | others.keys()
    assert names_of(write_stubs(Library.compile([]), tmp_path), tmp_path) >= of_f
    assert names_of(tmp_path.rglob("*.*"), tmp_path) == own | others.keys()
    assert all((tmp_path / name).read_text() == text for name, text in others.items())


@given(st.text(max_size=300) | st.text(alphabet="\"\\\n a'#", max_size=60))
def test_docstring_holds_its_text_and_nothing_behind_it(text: str) -> None:
    plain = readable(text, 200)
    source = docstring(plain)
    assert len(ast.parse(source).body) == 1
    assert ast.literal_eval(source).rstrip("\n") == plain
    module = ast.parse(f"async def f() -> int:\n{docstring(plain, '    ') if plain else '    ...'}\nx = 1\n")
    assert [type(node) for node in module.body] == [ast.AsyncFunctionDef, ast.Assign]


@given(st.text(max_size=200))
def test_comment_is_one_line_and_no_instruction(text: str) -> None:
    line = comment(text)
    assert len(ast.parse(f"x = 1{line}\n", type_comments=True).body) == 1
    assert "type: ignore" not in line


def test_description_is_cut_at_a_word() -> None:
    assert readable("word " * 1_000, 1_500).endswith("word…")
    assert len(stub(function(description="word " * 1_000))) < 1_700


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Create an issue. Then more.", "Create an issue."),
        ("Create an issue, e.g. a bug. More.", "Create an issue, e.g. a bug."),
        ("## Create\nan issue\n\nMore", "Create an issue"),
        ("\n\n---\n\nCreate it", "Create it"),
        ("创建问题。更多", "创建问题。"),
        ("", ""),
    ],
)
def test_summary_is_the_first_sentence(text: str, expected: str) -> None:
    assert first_sentence(text, 120) == expected

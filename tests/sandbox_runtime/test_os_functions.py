"""The functions of `os` take files of a workspace as Python's own do: by every name and in every order of arguments."""

from collections.abc import Callable
from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.granted_files import FileRunner, granted
from tests.sandbox_runtime.os_calls import CALLS
from tests.sandbox_runtime.os_paths import PATHS
from tests.sandbox_runtime.outside import printed_outside
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Json]]:
    """What a script's calls give where there are real files."""

    def results_of(script: str) -> dict[str, Json]:
        code = f"{script}\nimport json\nprint(json.dumps(result))"
        return printed_outside(code, folder=tmp_path_factory.mktemp("outside"))

    return results_of


async def test_every_form_of_a_call_gives_what_it_gives_outside(
    files: FileRunner, outside: Callable[[str], dict[str, Json]]
) -> None:
    found = await files.value(f"{CALLS}\nresult")
    assert isinstance(found, dict)
    assert len(found) > 200
    expected = outside(CALLS)
    assert {call: found.get(call) for call in expected} == expected


@pytest.mark.parametrize("kind", ["looks", "writes", "names"])
async def test_every_way_of_writing_a_path_leads_where_it_leads_outside(
    run: Runner, tmp_path: Path, outside: Callable[[str], dict[str, Json]], kind: str
) -> None:
    script = f"chosen = [{kind!r}]\n{PATHS}"
    async with granted(run, tmp_path, operations=1_000_000) as files:
        found = await files.value(f"{script}\nresult")
    assert isinstance(found, dict)
    assert len(found) > 300
    expected = outside(script)
    assert {call: (found.get(call), told) for call, told in expected.items() if found.get(call) != told} == {}


ROOT = """
import errno, os, sqlite3
open("f", "w").close()
told = [os.path.isdir("/"), os.listdir("/"), os.access("/", os.R_OK), os.access("/", os.W_OK), os.path.isdir("/no")]
told.append([(e.path, e.is_dir(), e.inode() == os.stat("/workspace").st_ino) for e in os.scandir("/")])
told.append([folder for folder, _, _ in os.walk("/")])
for do in (open, os.remove, os.rmdir, os.mkdir, lambda path: os.rename("f", path), lambda path: os.rename(path, "g")):
    for path in ("/", "/workspace"):
        try:
            told.append(do(path))
        except OSError as error:
            told.append(errno.errorcode[error.errno])
os.chdir("/")
[*told, os.getcwd(), os.listdir(), os.listdir("workspace"), os.path.exists("f"), os.path.realpath("workspace/../..")]
"""


async def test_root_is_a_folder_that_holds_the_workspace_and_nothing_else(files: FileRunner) -> None:
    looks = [True, ["workspace"], True, False, False, [["/workspace", True, True]], ["/", "/workspace"]]
    refusals = ["EISDIR", "EISDIR", "EISDIR", "EISDIR", "EBUSY", "EBUSY", "EEXIST", "EEXIST", *["EBUSY"] * 4]
    assert await files.value(ROOT) == [*looks, *refusals, "/", ["workspace"], ["f"], False, "/"]
    assert files.names() == ["f"]


async def test_file_goes_on_whatever_its_path_leads_to_by_now(files: FileRunner) -> None:
    script = (
        'import os\nos.mkdir("d")\nos.mkdir("e")\nf = open("e/../f", "w")\nf.write("a")\nf.flush()\n'
        'os.rmdir("e")\nos.chdir("d")\nf.write("b")\nf.close()\n[open("../f").read(), os.listdir()]'
    )
    assert await files.value(script) == ["ab", []]


async def test_database_is_no_folder(files: FileRunner) -> None:
    script = (
        "import os, sqlite3\ndef connects(path):\n    try: sqlite3.connect(path).execute('create table t(x)')\n"
        "    except sqlite3.OperationalError: return False\n    return True\n"
        "[connects(path) for path in ('a/', '.', '/', 'a/.', 'a/../b', 'a')]"
    )
    assert await files.value(script) == [False, False, False, False, False, True]
    assert files.names() == ["a"]


async def test_what_none_stands_for_is_the_working_directory(files: FileRunner) -> None:
    script = (
        'import os\nopen("f", "w").close()\n'
        "[os.listdir(None), os.listdir(path=None), os.listdir(), [e.name for e in os.scandir(None)]]"
    )
    assert await files.value(script) == [["f"]] * 4


TIMES = """
import os
with open("f", "w") as f:
    f.write("abc")
    f.flush()
    seen = [os.fstat(f.fileno()).st_mtime_ns]
kept = os.stat("f").st_mtime_ns
with open("f") as f: seen.append(os.fstat(f.fileno()).st_mtime_ns)
with open("f", "a") as f: seen.append(os.fstat(f.fileno()).st_mtime_ns)
n = os.open("f", os.O_RDONLY)
seen += [os.stat(n).st_mtime_ns, os.fstat(n).st_mtime_ns]
[kept, [each == kept for each in seen], os.fstat(n).st_ino == os.stat("f").st_ino]
"""


async def test_open_file_tells_when_it_was_changed(files: FileRunner) -> None:
    told = await files.value(TIMES)
    assert told == [(files.folder / "f").stat().st_mtime_ns, [True] * 5, True]


async def test_file_itself_is_taken_for_its_number_where_python_does(files: FileRunner) -> None:
    script = 'import os\nf = open("f", "w")\nf.write("abc")\nf.flush()\nos.fsync(f)\nopen("f").read()'
    assert await files.value(script) == "abc"


NO_TEXT = """
import os
told = []
for name in ({name}, "fine"):
    try:
        open(name, "w").close()
        told.append(os.stat(name).st_size)
    except UnicodeEncodeError:
        told.append(os.path.exists(name))
[told, os.listdir()]
"""


@pytest.mark.parametrize("name", [r"'a\ud800'", r"'a\udc80'", r"b'a\x80'", r"'d\udfff/f'"])
async def test_name_that_is_no_text_is_an_error_and_no_other_name(files: FileRunner, name: str) -> None:
    """Two of them would be one file: the host is told what of them is text."""
    assert await files.value(NO_TEXT.format(name=name)) == [[False, 0], ["fine"]]

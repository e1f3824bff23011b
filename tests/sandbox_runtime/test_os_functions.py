"""The functions of `os` take files of a workspace as Python's own do: by every name and in every order of arguments."""

import json
import subprocess
import sys

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.granted_files import FileRunner
from tests.sandbox_runtime.os_calls import CALLS

pytestmark = pytest.mark.anyio


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    """What the calls give where there are real files."""
    script = f"import json\n{CALLS}\nprint(json.dumps(result))"
    folder = tmp_path_factory.mktemp("outside")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    results: dict[str, Json] = json.loads(done.stdout)
    return results


async def test_every_form_of_a_call_gives_what_it_gives_outside(
    files: FileRunner, outside: dict[str, Json]
) -> None:
    found = await files.value(f"{CALLS}\nresult")
    assert isinstance(found, dict)
    assert len(found) > 200
    assert {call: found.get(call) for call in outside} == outside


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

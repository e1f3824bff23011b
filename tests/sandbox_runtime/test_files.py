"""Files of a granted folder behave as files do: every script here gives the same in the sandbox as outside."""

import json
import subprocess
import sys

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.file_scripts import scripts
from tests.sandbox_runtime.granted_files import FileRunner

pytestmark = pytest.mark.anyio

SCRIPTS = scripts()

OUTSIDE = """
import json, os, sys, tempfile
results = {}
for name, script in json.load(sys.stdin).items():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        space = {}
        exec(script, space)
        results[name] = space["result"]
        os.chdir("/")
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def outside() -> dict[str, Json]:
    """What every script gives where there are real files."""
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDE],
        input=json.dumps(SCRIPTS),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    results: dict[str, Json] = json.loads(done.stdout)
    return results


@pytest.mark.parametrize("name", SCRIPTS)
async def test_files_behave_as_outside(files: FileRunner, outside: dict[str, Json], name: str) -> None:
    result = await files(SCRIPTS[name] + "\nresult")
    assert result.error is None, result.error
    assert (result.value, result.stdout, result.notices) == (outside[name], "", ())

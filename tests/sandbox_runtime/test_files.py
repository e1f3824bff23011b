"""Files of a granted folder behave as files do: every script here gives the same in the sandbox as outside."""

import json

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.file_scripts import scripts
from tests.sandbox_runtime.granted_files import FileRunner
from tests.sandbox_runtime.outside import printed_outside

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
    return printed_outside(OUTSIDE, json.dumps(SCRIPTS))


@pytest.mark.parametrize("name", SCRIPTS)
async def test_files_behave_as_outside(files: FileRunner, outside: dict[str, Json], name: str) -> None:
    result = await files(SCRIPTS[name] + "\nresult")
    assert result.error is None, result.error
    assert (result.value, result.stdout, result.notices) == (outside[name], "", ())

"""An operator bakes a package of their own, and scripts import it."""

import json
from pathlib import Path

import pytest

from tests.packaging.wheels import write_wheel
from tests.portal.commands import Done, finished, started

pytestmark = pytest.mark.timeout(400)

TINY = {
    "tiny/__init__.py": (
        "import importlib.resources, yaml\n"
        "settings = yaml.safe_load(importlib.resources.read_text('tiny', 'settings.yaml'))\n"
    ),
    "tiny/settings.yaml": "answer: 42\n",
    "json.py": "raise RuntimeError('not the json of the standard library')\n",
}
NEEDS_A_BAKED_COMPONENT = pytest.mark.release
"""Baking takes half a minute of both cores. CI builds the portal's own component, with the same code."""

SCRIPT = """
import importlib.metadata, json, tiny
json.dumps(tiny.settings), importlib.metadata.version("tiny")
"""


@pytest.fixture(scope="module")
def baked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a baked component, with the manifest that the command asks for."""
    folder = tmp_path_factory.mktemp("baked")
    wheel = write_wheel(folder, "tiny", TINY, requires="PyYAML")
    done = portal(folder, "bake", wheel.name, env={"PIP_NO_INDEX": "1"})
    assert done.returncode == 0, done.stderr
    assert "tiny 1.0" in done.stderr
    (folder / "portal.yaml").write_text(done.stdout)
    (folder / "script.py").write_text(SCRIPT)
    return folder


def portal(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Done:
    process = started(*arguments, cwd=folder, env=env)
    stdout, stderr = process.communicate(timeout=300)
    return Done(process.returncode, stdout, stderr)


@NEEDS_A_BAKED_COMPONENT
def test_script_imports_the_package_and_its_data(baked: Path) -> None:
    done = portal(baked, "run", "script.py")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ['{"answer": 42}', "1.0"]


@NEEDS_A_BAKED_COMPONENT
def test_check_tells_what_is_baked_in(baked: Path) -> None:
    done = portal(baked, "check")
    assert (done.returncode, "baked in: tiny 1.0" in done.stdout) == (0, True), done.stdout


def test_missing_component_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("1")
    (tmp_path / "portal.yaml").write_text("server: {component: gone.wasm}\n")
    done = finished("run", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "gone.wasm is missing" in done.stderr

"""The package as it is built, and as it works in an empty environment far from its source."""

import json
import shutil
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.acceptance.model import Model, text_of
from tests.packaging.source_tree import (
    CONSTRAINTS,
    ROOT,
    bring_components,
    copy_source,
    make_environment,
    run,
    uv,
)

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]

OURS = ("manifests", "portal", "sandbox_runtime", "upstreams")
OWNERS = f"""
import importlib.metadata, json
owners = importlib.metadata.packages_distributions()
print(json.dumps([owners[name] for name in {OURS}]))
"""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    source = copy_source(folder / "source")
    run(["python", "-m", "build", "--installer", "uv", "--sdist", "--outdir", str(folder), "."], source)
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as `python -m build` does; only the component is brought along."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.unpack_archive(sdist, folder)
    (source,) = folder.iterdir()
    bring_components(source)
    run(["python", "-m", "build", "--installer", "uv", "--wheel", "--outdir", str(folder), "."], source)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("installed")
    python = make_environment(folder / "environment")
    install = [uv(), "pip", "install", "--quiet", "--python", str(python), "--constraints", str(CONSTRAINTS)]
    run([*install, str(wheel)], folder)
    return python


def test_sdist_holds_sources_and_not_the_components(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not [name for name in names if name.endswith(".wasm")]
    assert {"hatch_build.py", "sandbox_runtime/wit/sandbox.wit", "LICENSE", "NOTICE"} <= names


def test_sdist_holds_everything_the_components_are_made_from(wheel: Path, sdist: Path) -> None:
    """The build would have made new components, and with them new stamps, had any source been missing."""
    (source,) = (path for path in wheel.parent.iterdir() if path.is_dir())
    check = (
        "from pathlib import Path; from sandbox_runtime.build_guest import GuestBuild\n"
        "from sandbox_runtime.build_js import JsBuild; package = Path('sandbox_runtime').resolve()\n"
        "sys.exit(not (GuestBuild(package).is_current and JsBuild(package).is_current))"
    )
    run(["python", "-c", f"import sys; sys.path.insert(0, '.')\n{check}"], source)


@pytest.mark.parametrize(
    "name",
    [
        "sandbox_runtime/guest.wasm",
        "sandbox_runtime/js.wasm",
        "manifests/portal.schema.json",
        "portal/base/o200k_base.tiktoken.xz",
        "portal/library/portal.d.ts",
        "portal/console/static/htmx.js",
        "portal/console/templates/base.html",
    ],
)
def test_wheel_holds_what_the_code_reads(wheel: Path, name: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.getinfo(name).file_size > 100


def test_wheel_holds_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    for text in (ROOT / "licenses").iterdir():
        assert any(name.endswith(f"licenses/{text.name}") for name in names), text.name


def test_wheel_holds_only_our_four_folders(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == set(OURS)


def test_our_names_are_ours_alone(installed: Path, tmp_path: Path) -> None:
    owners: Sequence[Sequence[str]] = json.loads(run([str(installed), "-c", OWNERS], tmp_path))
    assert owners == [["mcp-code-portal"]] * len(OURS)


async def test_installed_portal_serves_both_tools(installed: Path, tmp_path: Path) -> None:
    await assert_serves(installed, tmp_path)


@pytest.mark.release
async def test_pip_install_of_the_source_and_then_editable(tmp_path: Path) -> None:
    source = copy_source(tmp_path / "source")
    bring_components(source)
    python = make_environment(tmp_path / "environment", with_pip=True)
    install = [str(python), "-m", "pip", "install", "--constraint", str(CONSTRAINTS)]
    for options, is_editable in ((["."], False), (["--editable", "."], True)):
        run([*install, *options], source)
        found = run([str(python), "-c", "import portal; print(portal.__file__)"], tmp_path)
        assert Path(found.strip()).is_relative_to(source.resolve()) == is_editable
        await assert_serves(python, tmp_path)


async def assert_serves(python: Path, folder: Path) -> None:
    """The command beside that Python serves without any manifest, from a folder that is not the source."""
    parameters = StdioServerParameters(
        command=str(python.with_name("mcp-code-portal")), args=["serve"], cwd=folder
    )
    async with Client(parameters) as client:
        model = Model(client)
        assert "no upstreams" in text_of(await model.call("docs_search", {}))
        code = "import sys; sys.version_info[:2]"
        assert json.loads(text_of(await model.call("execute_code", {"code": code})))["result"] == [3, 14]

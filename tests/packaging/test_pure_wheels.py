"""What pip finds for the sandbox is pure Python, or refused with the name of what is not. No index is asked."""

import sysconfig
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from sandbox_runtime.build_guest import installed_packages, resolve
from sandbox_runtime.errors import BakeError
from tests.packaging.wheels import write_wheel

PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which pip looks for wheels."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return folder


def resolved(folder: Path, *requirements: str) -> list[Distribution]:
    return resolve(requirements, installed_packages(), folder)


def test_package_and_what_it_needs_are_found_but_what_every_sandbox_has_is_not_looked_for(
    index: Path, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, "above", {"above.py": ""}, requires="below")
    write_wheel(index, "below", {"below/__init__.py": "", "below/data.txt": "x"}, requires="PyYAML>=6")
    found = resolved(tmp_path, str(wheel))
    assert sorted(package.name for package in found) == ["above", "below"]


@pytest.mark.parametrize(
    ("name", "files", "more", "told"),
    [
        ("old", ["old.py"], {"requires": "tabulate<0.9"}, "tabulate"),  # which every sandbox has, newer
        ("native", ["native.so"], {"tag": f"py3-none-{PLATFORM}"}, "(?s)pure Python.*native"),
        ("secretive", ["secretive/__init__.py", "secretive/_fast.so"], {}, r"secretive 1\.0.*_fast\.so"),
    ],
)
def test_wheel_that_is_not_for_every_sandbox_is_refused(
    index: Path, tmp_path: Path, name: str, files: list[str], more: dict[str, str], told: str
) -> None:
    write_wheel(index, name, dict.fromkeys(files, ""), **more)
    with pytest.raises(BakeError, match=told):
        resolved(tmp_path, name)


def test_path_of_a_wheel_for_a_platform_is_refused_by_its_name(index: Path, tmp_path: Path) -> None:
    native = write_wheel(tmp_path, "native", {"native.so": ""}, tag="cp314-cp314-linux_x86_64")
    with pytest.raises(BakeError, match=native.name):
        resolved(tmp_path, str(native))


def test_requirement_is_no_option_of_pip(index: Path, tmp_path: Path) -> None:
    with pytest.raises(BakeError, match="pip could not install"):
        resolved(tmp_path, "--help")

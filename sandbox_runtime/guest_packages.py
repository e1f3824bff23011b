"""The packages that go inside the guest component, and how they are laid out for its build.

It is imported while the package itself is built: the standard library only.
"""

import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

PACKAGES = {
    "Jinja2": "3.1.6",
    "MarkupSafe": "3.0.4",
    "PyYAML": "6.0.3",
    "jmespath": "1.1.0",
    "more-itertools": "11.2.1",
    "python-dateutil": "4.0.0",
    "tabulate": "0.10.0",
    "tzdata": "2026.6",
}
"""Name and version of each. MarkupSafe and PyYAML have native parts, which are left out: both do without."""

REQUIREMENTS = tuple(f"{name}=={version}" for name, version in PACKAGES.items())

_NATIVE = (".so", ".pyd", ".dylib", ".dll", ".a", ".wasm")
_WHEEL = "Wheel-Version: 1.0\nGenerator: mcp-code-portal\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_LEFT_OUT = (*_NATIVE, ".pyc", ".pyi", ".pyx", ".pxd", ".c", ".h", "py.typed")


class PackageError(Exception):
    """A package cannot go inside; the message names it and says why."""


def installed_packages() -> list[Distribution]:
    """The distributions of `PACKAGES`, as this process would import them.

    Raises:
        PackageError: One is missing, or another version.
    """
    found = []
    for name, version in PACKAGES.items():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise PackageError(f"the build needs {name}=={version}") from None
        if package.version != version:
            raise PackageError(f"the build needs {name}=={version}, and {package.version} is installed")
        found.append(package)
    return found


def stage(packages: Iterable[Distribution], folder: Path) -> None:
    """Lay out modules, data files and metadata of `packages` in `folder`, as the guest freezes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        for path in _carried(package):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(package.locate_file(path)), folder / path)
        information = folder / f"{normalized(package.name)}-{package.version}.dist-info"
        information.mkdir()
        for name, text in _information(package).items():
            (information / name).write_text(text, "utf-8")


def native_files(package: Distribution) -> list[str]:
    """The files of a package that only its platform can load."""
    return [str(path) for path in package.files or () if path.suffix in _NATIVE]


def modules_of(package: Distribution) -> list[str]:
    """What a script imports: the names on top."""
    tops = {path.parts[0].removesuffix(".py") for path in _carried(package) if path.suffix == ".py"}
    return sorted(name for name in tops if name.isidentifier())


def normalized(name: str) -> str:
    """The name of a package in the form in which any two spellings of it are equal."""
    return re.sub(r"[-_.]+", "_", name).lower()


def write_wheel(package: Distribution, folder: Path) -> None:
    """Pack what goes inside of an installed package as a wheel of pure Python."""
    name = f"{normalized(package.name)}-{package.version}"
    information = f"{name}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        for path in _carried(package):
            wheel.write(str(package.locate_file(path)), str(path))
        wheel.writestr(f"{information}/METADATA", package.read_text("METADATA") or "")
        wheel.writestr(f"{information}/WHEEL", _WHEEL)
        wheel.writestr(f"{information}/RECORD", "")


def _carried(package: Distribution) -> Iterator[PurePosixPath]:
    for path in package.files or ():
        is_outside = path.is_absolute() or ".." in path.parts
        is_information = path.parts[0].endswith((".dist-info", ".data")) or "__pycache__" in path.parts
        if not (is_outside or is_information or path.name.endswith(_LEFT_OUT)):
            yield path


def _information(package: Distribution) -> dict[str, str]:
    """What `importlib.metadata` can be asked for inside, by file name."""
    # The description, often the longest part, is of no use inside.
    headers, _, _ = (package.read_text("METADATA") or "").partition("\n\n")
    texts = {"METADATA": headers + "\n", "top_level.txt": "\n".join(modules_of(package)) + "\n"}
    entry_points = package.read_text("entry_points.txt")
    return texts if entry_points is None else texts | {"entry_points.txt": entry_points}

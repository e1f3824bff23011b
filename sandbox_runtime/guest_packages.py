"""The packages that go inside the guest component, and how they are laid out for its build.

It is imported while the package itself is built: the standard library only.
"""

import shutil
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
        paths = list(_carried(package))
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(package.locate_file(path)), folder / path)
        information = folder / f"{_normalized(package)}-{package.version}.dist-info"
        information.mkdir()
        for name, text in _information(package, paths).items():
            (information / name).write_text(text, "utf-8")


def native_files(package: Distribution) -> list[str]:
    """The files of a package that only its platform can load."""
    return [str(path) for path in package.files or () if path.suffix in _NATIVE]


def _carried(package: Distribution) -> Iterator[PurePosixPath]:
    for path in package.files or ():
        is_outside = path.is_absolute() or ".." in path.parts
        is_information = path.parts[0].endswith((".dist-info", ".data")) or "__pycache__" in path.parts
        if not (is_outside or is_information or path.name.endswith(_LEFT_OUT)):
            yield path


def _information(package: Distribution, paths: Iterable[PurePosixPath]) -> dict[str, str]:
    """What `importlib.metadata` can be asked for inside, by file name."""
    # The description, often the longest part, is of no use inside.
    headers, _, _ = (package.read_text("METADATA") or "").partition("\n\n")
    modules = sorted({path.parts[0].removesuffix(".py") for path in paths})
    texts = {"METADATA": headers + "\n", "top_level.txt": "\n".join(modules) + "\n"}
    entry_points = package.read_text("entry_points.txt")
    return texts if entry_points is None else texts | {"entry_points.txt": entry_points}


def _normalized(package: Distribution) -> str:
    return package.name.lower().replace("-", "_").replace(".", "_")

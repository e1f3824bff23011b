"""Builds `guest.wasm`, the component scripts run in: `python -m sandbox_runtime.build_guest`.

The package build does the same through `hatch_build.py`, so this imports the standard library only. A stamp beside
the component tells whether it is what the sources would give.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
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

REQUIREMENTS = ("componentize-py==0.25.1", *(f"{name}=={version}" for name, version in PACKAGES.items()))
"""What a build needs; all but the first go inside."""

_KEPT_ENVIRONMENT = ("PATH", "HOME", "TMPDIR")
_NATIVE = (".so", ".pyd", ".dylib", ".dll", ".a", ".wasm")
_WHEEL = "Wheel-Version: 1.0\nGenerator: mcp-code-portal\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_LEFT_OUT = (*_NATIVE, ".pyc", ".pyi", ".pyx", ".pxd", ".c", ".h", "py.typed")


class GuestBuildError(Exception):
    """The component could not be built; the message carries the end of what componentize-py said."""


class GuestBuild:
    """The component of one source tree; `package` is its `sandbox_runtime` folder."""

    def __init__(self, package: Path) -> None:
        self._package = package
        self.component = package / "guest.wasm"
        self._stamp = package / "guest.stamp"

    @property
    def is_current(self) -> bool:
        """True if the component is there and its stamp says that these sources made it."""
        if not (self.component.exists() and self._stamp.exists()):
            return False
        return self._stamp.read_text().strip() == self.fingerprint()

    def build(self, display: Callable[[str], None]) -> None:
        """Build the component in about 15 s. Needs `REQUIREMENTS` to be importable.

        Raises:
            GuestBuildError: componentize-py failed, or a requirement is missing.
        """
        display("building the sandbox's guest component (about 15 s)")
        fingerprint = self.fingerprint()
        try:
            self.build_with(installed_packages(), self.component)
        except PackageError as error:
            raise GuestBuildError(str(error)) from error
        self._stamp.write_text(fingerprint + "\n")
        display(f"built {self.component.name}, {self.component.stat().st_size / 1e6:.1f} MB")

    def build_with(self, packages: Iterable[Distribution], target: Path, trailer: bytes = b"") -> None:
        """Build a component with `packages` inside into the file `target`, and append `trailer` to it.

        Raises:
            GuestBuildError: componentize-py failed, or is missing.
        """
        with tempfile.TemporaryDirectory() as scratch:
            built = self._componentize(Path(scratch), packages)
            with built.open("ab") as file:
                file.write(trailer)
            # Copied, then renamed: a build that is interrupted leaves the old component or the new one.
            partial = target.with_suffix(".partial")
            shutil.copyfile(built, partial)
            partial.replace(target)

    def fingerprint(self) -> str:
        """Names what a component is made from, besides packages that an operator adds."""
        digest = hashlib.sha256("\n".join(REQUIREMENTS).encode())
        for source in self._sources():
            content = source.read_bytes()
            digest.update(f"\n{source.relative_to(self._package)} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()

    def _componentize(self, scratch: Path, packages: Iterable[Distribution]) -> Path:
        sources, environment = scratch / "sources", scratch / "environment"
        self._stage(sources)
        stage(packages, sources / "packages")
        # Without a VIRTUAL_ENV of its own, componentize-py would swallow whatever packages happen to be around.
        site_packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        (environment / site_packages).mkdir(parents=True)
        output = scratch / "guest.wasm"
        # pip's build environment is a path, not a virtual environment: the child is told this process's path.
        run = (
            f"import sys; sys.path[:] = {sys.path!r}; from componentize_py import script; sys.exit(script())"
        )
        arguments = ["-d", str(self._package / "wit"), "-w", "sandbox", "componentize", "-p", str(sources)]
        done = subprocess.run(
            [sys.executable, "-c", run, *arguments, "sandbox_runtime.guest.entry", "-o", str(output)],
            env={**_kept_environment(), "VIRTUAL_ENV": str(environment)},
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not output.exists():
            raise GuestBuildError(
                f"componentize-py failed with status {done.returncode}:\n{done.stdout[-4000:]}"
            )
        return output

    def _stage(self, sources: Path) -> None:
        """Copy what goes inside: `sandbox_runtime/guest`, and no other part of the package."""
        package = sources / "sandbox_runtime"
        (package / "guest").mkdir(parents=True)
        shutil.copyfile(self._package / "__init__.py", package / "__init__.py")
        for source in (self._package / "guest").glob("*.py"):
            shutil.copyfile(source, package / "guest" / source.name)

    def _sources(self) -> Iterator[Path]:
        yield self._package / "build_guest.py"
        yield from sorted(self._package.glob("wit/*.wit"))
        yield from sorted(self._package.glob("guest/*.py"))


def _kept_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}


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


def main() -> int:
    build = GuestBuild(Path(__file__).resolve().parent)
    if build.is_current:
        print("guest.wasm is up to date", file=sys.stderr)  # noqa: T201  # a command prints
        return 0
    try:
        build.build(lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201
    except GuestBuildError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

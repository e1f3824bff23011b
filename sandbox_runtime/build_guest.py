"""Builds the component that scripts run in: `python -m sandbox_runtime.build_guest` makes `guest.wasm`, and `bake` one
with further packages.

The package build uses it through `hatch_build.py`, so it imports the standard library only. A stamp beside `guest.wasm`
shows whether it is current.
"""

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path, PurePosixPath

from manifests.own_files import ORDINARY, write_whole
from sandbox_runtime.errors import BakedComponentError, BakeError, BakeToolsError

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
"""Names and versions. The native parts of MarkupSafe and PyYAML are left out: both work without."""

REQUIREMENTS = ("componentize-py==0.25.1", *(f"{name}=={version}" for name, version in PACKAGES.items()))
"""The requirements of a build; all but the first go into the component."""

_HERE = Path(__file__).resolve().parent
_KEPT_ENVIRONMENT = ("PATH", "HOME", "TMPDIR")
_NATIVE = (".so", ".pyd", ".dylib", ".dll", ".a", ".wasm")
_LEFT_OUT = (*_NATIVE, ".pyc", ".pyi", ".pyx", ".pxd", ".c", ".h", "py.typed")
_WHEEL = "Wheel-Version: 1.0\nGenerator: mcp-code-portal\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_PIP = (sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "install")
_PIP_SECONDS = 600
_TOOL_SECONDS = 1200
# Only pure wheels: installing them runs none of their code.
_PURE = ("--platform", "any", "--implementation", "py", "--abi", "none", "--python-version", "3.14")
_SHOWN_CHARS = 4000
_SECTION = b"\x0fmcp-code-portal"
_MAX_SECTION_BYTES = 1 << 20


class ComponentBuild(ABC):
    """A component of one source tree; `package` is its `sandbox_runtime` folder."""

    name: str
    requirements: Sequence[str]
    """What `build` imports."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.component = package / f"{self.name}.wasm"
        self._stamp = package / f"{self.name}.stamp"

    @property
    def is_current(self) -> bool:
        """Whether the component exists and its stamp matches these sources."""
        is_there = self.component.exists() and self._stamp.exists()
        return is_there and self._stamp.read_text().strip() == self.fingerprint()

    def build(self, display: Callable[[str], None]) -> None:
        """Build the component and its stamp. Raises BakeError."""
        fingerprint = self.fingerprint()
        write_whole(self.component, self.built(display), mode=ORDINARY, is_lasting=False)
        self._stamp.write_text(fingerprint + "\n")

    def fingerprint(self) -> str:
        """A hash of the component's sources, without the packages that an operator adds."""
        return self.hashed(self.sources())

    def hashed(self, sources: Iterable[Path], settings: object = ()) -> str:
        digest = hashlib.sha256(repr((self.requirements, settings)).encode())
        for source in sources:
            content = source.read_bytes()
            digest.update(f"\n{source.relative_to(self.package)} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    @abstractmethod
    def sources(self) -> Iterable[Path]: ...

    @abstractmethod
    def built(self, display: Callable[[str], None]) -> bytes: ...

    @classmethod
    def main(cls) -> None:
        """Build the component of this source tree if it is not current, as a command."""
        build = cls(_HERE)
        try:
            if not build.is_current:
                build.build(lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201  # a command prints
        except BakeError as error:
            sys.exit(str(error))


def run_tool(
    name: str,
    start: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    hint: str = "",
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run an installed tool, which Python starts so, in a folder. Raises BakeError with the end of what it said."""
    # pip's build environment is only a path, not a virtual environment, so the child gets this process's path.
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {start}", *arguments],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TOOL_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        output = done.stdout[-_SHOWN_CHARS:].rstrip()
        raise BakeError(f"{name} failed with status {done.returncode}:\n{output}{hint}")


class GuestBuild(ComponentBuild):
    """The build of Python's component."""

    name = "guest"
    requirements = REQUIREMENTS

    def sources(self) -> Iterable[Path]:
        guest, wit = self.package.glob("guest/**/*.py"), self.package.glob("wit/*.wit")
        return (self.package / "build_guest.py", *sorted(wit), *sorted(guest))

    def built(self, display: Callable[[str], None]) -> bytes:
        display("building the sandbox's guest component (about 15 s)")
        return self.built_with(installed_packages())

    def built_with(self, packages: Iterable[Distribution]) -> bytes:
        """A component with `packages` inside. Raises BakeError."""
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            sources, environment, built = scratch / "sources", scratch / "environment", scratch / "guest.wasm"
            inside = sources / "sandbox_runtime"  # sandbox_runtime/guest, and no other part of the package
            shutil.copytree(
                self.package / "guest", inside / "guest", ignore=shutil.ignore_patterns("__pycache__")
            )
            shutil.copyfile(self.package / "__init__.py", inside / "__init__.py")
            for path, content in (item for package in packages for item in _contents(package).items()):
                file = sources / "packages" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            # An empty VIRTUAL_ENV: otherwise componentize-py includes all installed packages.
            python = f"python{sys.version_info.major}.{sys.version_info.minor}"
            (environment / "lib" / python / "site-packages").mkdir(parents=True)
            options = ["-d", str(self.package / "wit"), "-w", "sandbox", "componentize", "-p", str(sources)]
            options += ["sandbox_runtime.guest.entry", "-o", str(built)]
            kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
            start = "from componentize_py import script; sys.exit(script())"
            kept["VIRTUAL_ENV"] = str(environment)
            run_tool("componentize-py", start, options, scratch, environment=kept)
            return built.read_bytes()


@dataclass(frozen=True, slots=True)
class Baked:
    """The description of a baked component: the requirements, the guest's fingerprint, and the result.

    `packages` are the added names and versions, `modules` their import names.
    """

    requirements: Sequence[str]
    fingerprint: str
    packages: Sequence[tuple[str, str]]
    modules: Sequence[str]

    def listed(self) -> str:
        """The added packages with their versions, for people."""
        return ", ".join(f"{name} {version}" for name, version in self.packages)

    def section(self) -> bytes:
        """The description as a custom wasm section, the last of the component. Engines skip it."""
        payload = _SECTION + json.dumps(asdict(self)).encode()
        return (
            bytes([0, *(len(payload) >> shift & 0x7F | 0x80 for shift in (0, 7, 14)), len(payload) >> 21])
            + payload
        )

    @classmethod
    def read(cls, component: Path) -> "Baked | None":
        """The component's description, or None if it has none."""
        with component.open("rb") as file:
            file.seek(max(component.stat().st_size - _MAX_SECTION_BYTES, 0))
            _, _, content = file.read().rpartition(_SECTION)
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return None


def check_baked(component: Path) -> Baked:
    """The description of an operator's component. Raises BakedComponentError: this version cannot run it."""
    if not component.is_file():
        raise BakedComponentError(f"the component {component.name} is missing")
    baked = Baked.read(component)
    if baked is None:
        raise BakedComponentError(f"{component.name} was not made by `mcp-code-portal bake`")
    if baked.fingerprint != GuestBuild(_HERE).fingerprint():
        packages = shlex.join(baked.requirements)
        raise BakedComponentError(
            f"{component.name} was baked by another version of mcp-code-portal; bake it again: "
            f"`mcp-code-portal bake {packages} --out {component.name}`"
        )
    return baked


def bake(requirements: Sequence[str], target: Path, progress: Callable[[str], None]) -> Baked:
    """Write a component with the standard packages, `requirements` and their dependencies to `target`.

    Requirements are pip's: a name, optionally with a version, or the path of a wheel. pip uses its own configuration.
    Takes half a minute and needs the extra `bake`. Raises BakeError.
    """
    for tool in ("pip", "componentize_py"):
        if importlib.util.find_spec(tool) is None:
            raise BakeToolsError(f"{tool} is not installed")
    common = installed_packages()
    with tempfile.TemporaryDirectory() as folder:
        progress(f"resolving {', '.join(requirements)} and their dependencies")
        added = resolve(requirements, common, Path(folder))
        build = GuestBuild(_HERE)
        baked = Baked(
            requirements,
            build.fingerprint(),
            sorted((package.name, package.version) for package in added),
            sorted({module for package in added for module in _modules(package)}),
        )
        progress(f"building the component with {baked.listed()} (about 20 s)")
        component = build.built_with([*common, *added]) + baked.section()
        write_whole(target, component, mode=ORDINARY, is_lasting=False)
    return baked


def installed_packages() -> list[Distribution]:
    """The installed distributions of `PACKAGES`. Raises BakeToolsError: one is missing or has another version."""
    found = []
    for name, version in PACKAGES.items():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise BakeToolsError(f"the build needs {name}=={version}") from None
        if package.version != version:
            raise BakeToolsError(f"the build needs {name}=={version}, but {package.version} is installed")
        found.append(package)
    return found


def resolve(requirements: Sequence[str], common: Sequence[Distribution], folder: Path) -> list[Distribution]:
    """The distributions of `requirements` and their dependencies, without those in `common`. Raises BakeError."""
    wheels, constraints, target = folder / "wheels", folder / "constraints.txt", folder / "packages"
    wheels.mkdir()
    for package in common:
        # No index has some of them as pure wheels, so pip gets them here.
        name = f"{_normalized(package.name)}-{package.version}"
        with zipfile.ZipFile(wheels / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.dist-info/WHEEL", _WHEEL)
            wheel.writestr(f"{name}.dist-info/RECORD", "")
            for inside, content in _contents(package).items():
                wheel.writestr(inside, content)
    constraints.write_text("".join(f"{package.name}=={package.version}\n" for package in common))
    given = ("--find-links", str(wheels), "--constraint", str(constraints))
    options = ("--progress-bar", "off", "--only-binary", ":all:", "--no-compile", "--target", str(target))
    try:
        done = subprocess.run(
            [*_PIP, *options, *_PURE, *given, "--", *requirements],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BakeError(f"pip did not finish within {_PIP_SECONDS} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("WARNING:")]
        raise BakeError(
            "pip could not install the packages. Only pure Python wheels can be baked in, and the versions of the "
            "standard packages are fixed. pip said:\n" + "\n".join(lines)[-_SHOWN_CHARS:].strip()
        )
    names = {_normalized(package.name) for package in common}
    found = [
        package for package in distributions(path=[str(target)]) if _normalized(package.name) not in names
    ]
    for package in found:
        for path in package.files or ():
            if path.suffix in _NATIVE:
                what = f"{package.name} {package.version}, {path},"
                raise BakeError(f"{what} has native code; the sandbox runs only pure Python")
    return found


def _contents(package: Distribution) -> dict[str, bytes]:
    """The files to include, by path: modules, data files, and metadata for `importlib.metadata`."""
    contents = {
        str(path): Path(str(package.locate_file(path))).read_bytes() for path in _included_files(package)
    }
    information = f"{_normalized(package.name)}-{package.version}.dist-info"
    # Without the description, often the longest part.
    headers, _, _ = (package.read_text("METADATA") or "").partition("\n\n")
    modules, entry_points = "\n".join(_modules(package)), package.read_text("entry_points.txt")
    texts = {"METADATA": headers + "\n", "top_level.txt": modules + "\n", "entry_points.txt": entry_points}
    return contents | {f"{information}/{name}": text.encode() for name, text in texts.items() if text}


def _modules(package: Distribution) -> list[str]:
    """The top-level import names."""
    tops = {path.parts[0].removesuffix(".py") for path in _included_files(package) if path.suffix == ".py"}
    return sorted(name for name in tops if name.isidentifier())


def _included_files(package: Distribution) -> Iterator[PurePosixPath]:
    for path in package.files or ():
        is_outside = path.is_absolute() or ".." in path.parts
        is_information = path.parts[0].endswith((".dist-info", ".data")) or "__pycache__" in path.parts
        if not (is_outside or is_information or path.name.endswith(_LEFT_OUT)):
            yield path


def _normalized(name: str) -> str:
    """The normalized name of a package (PEP 503, with `_`)."""
    return re.sub(r"[-_.]+", "_", name).lower()


if __name__ == "__main__":
    GuestBuild.main()

"""Builds the component scripts run in: `python -m sandbox_runtime.build_guest` makes `guest.wasm`, and `bake` one with
further packages inside.

The package build does the same through `hatch_build.py`, so this imports the standard library only. A stamp beside
`guest.wasm` tells whether it is what the sources would give.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path, PurePosixPath

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
"""Name and version of each. MarkupSafe and PyYAML have native parts, which are left out: both do without."""

REQUIREMENTS = ("componentize-py==0.25.1", *(f"{name}=={version}" for name, version in PACKAGES.items()))
"""What a build needs; all but the first go inside."""

_HERE = Path(__file__).resolve().parent
_KEPT_ENVIRONMENT = ("PATH", "HOME", "TMPDIR")
_NATIVE = (".so", ".pyd", ".dylib", ".dll", ".a", ".wasm")
_LEFT_OUT = (*_NATIVE, ".pyc", ".pyi", ".pyx", ".pxd", ".c", ".h", "py.typed")
_WHEEL = "Wheel-Version: 1.0\nGenerator: mcp-code-portal\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_PIP = (sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "install")
_PIP_SECONDS = 600
# Wheels for any platform need no code of theirs to run while they are installed.
_PURE = ("--platform", "any", "--implementation", "py", "--abi", "none", "--python-version", "3.14")
_SHOWN_CHARS = 4000
_SECTION = b"\x0fmcp-code-portal"
_MAX_SECTION_BYTES = 1 << 20


class GuestBuild:
    """The component of one source tree; `package` is its `sandbox_runtime` folder."""

    def __init__(self, package: Path) -> None:
        self._package = package
        self.component = package / "guest.wasm"
        self._stamp = package / "guest.stamp"

    @property
    def is_current(self) -> bool:
        """True if the component is there and its stamp says that these sources made it."""
        is_there = self.component.exists() and self._stamp.exists()
        return is_there and self._stamp.read_text().strip() == self.fingerprint()

    def fingerprint(self) -> str:
        """Names what a component is made from, besides packages that an operator adds."""
        digest = hashlib.sha256("\n".join(REQUIREMENTS).encode())
        guest, wit = sorted(self._package.glob("guest/**/*.py")), sorted(self._package.glob("wit/*.wit"))
        for source in (self._package / "build_guest.py", *wit, *guest):
            content = source.read_bytes()
            digest.update(f"\n{source.relative_to(self._package)} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()

    def build(self, display: Callable[[str], None]) -> None:
        """Build the component, and its stamp. Needs `REQUIREMENTS` to be importable. Raises BakeError."""
        display("building the sandbox's guest component (about 15 s)")
        fingerprint = self.fingerprint()
        self.build_with(installed_packages(), self.component)
        self._stamp.write_text(fingerprint + "\n")

    def build_with(self, packages: Iterable[Distribution], target: Path, trailer: bytes = b"") -> None:
        """Build a component with `packages` inside into the file `target`, and append `trailer`. Raises BakeError."""
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            sources, environment, built = scratch / "sources", scratch / "environment", scratch / "guest.wasm"
            inside = sources / "sandbox_runtime"  # sandbox_runtime/guest, and no other part of the package
            shutil.copytree(
                self._package / "guest", inside / "guest", ignore=shutil.ignore_patterns("__pycache__")
            )
            shutil.copyfile(self._package / "__init__.py", inside / "__init__.py")
            for path, content in (item for package in packages for item in _contents(package).items()):
                file = sources / "packages" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            # Without a VIRTUAL_ENV of its own, componentize-py would swallow whatever packages happen to be around.
            python = f"python{sys.version_info.major}.{sys.version_info.minor}"
            (environment / "lib" / python / "site-packages").mkdir(parents=True)
            # pip's build environment is a path, not a virtual environment: the child is told this process's path.
            run = f"import sys; sys.path[:] = {sys.path!r}; from componentize_py import script; sys.exit(script())"
            options = ["-d", str(self._package / "wit"), "-w", "sandbox", "componentize", "-p", str(sources)]
            kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
            done = subprocess.run(
                [sys.executable, "-c", run, *options, "sandbox_runtime.guest.entry", "-o", str(built)],
                env={**kept, "VIRTUAL_ENV": str(environment)},
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode != 0 or not built.exists():
                output = done.stdout[-_SHOWN_CHARS:]
                raise BakeError(f"componentize-py failed with status {done.returncode}:\n{output}")
            # Written, then renamed: a build that is interrupted leaves the old component or the new one.
            partial = target.with_suffix(".partial")
            partial.write_bytes(built.read_bytes() + trailer)
            partial.replace(target)


@dataclass(frozen=True, slots=True)
class Baked:
    """What was baked: as it was asked for, with what version of the guest, and what came of it.

    `packages` are names and versions besides those that every component has, `modules` what scripts import.
    """

    requirements: Sequence[str]
    fingerprint: str
    packages: Sequence[tuple[str, str]]
    modules: Sequence[str]

    def listed(self) -> str:
        """Its packages with their versions, for people."""
        return ", ".join(f"{name} {version}" for name, version in self.packages)

    def section(self) -> bytes:
        """A custom section of wasm, which engines skip; the last of the component."""
        payload = _SECTION + json.dumps(asdict(self)).encode()
        return (
            bytes([0, *(len(payload) >> shift & 0x7F | 0x80 for shift in (0, 7, 14)), len(payload) >> 21])
            + payload
        )

    @classmethod
    def read(cls, component: Path) -> "Baked | None":
        """What the component says, or None if it does not end with a section that was written here."""
        with component.open("rb") as file:
            file.seek(max(component.stat().st_size - _MAX_SECTION_BYTES, 0))
            _, _, content = file.read().rpartition(_SECTION)
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return None


def check_baked(component: Path) -> Baked:
    """What a component that an operator chose holds. Raises BakedComponentError: this version cannot run it."""
    if not component.is_file():
        raise BakedComponentError(f"the component {component.name} is missing")
    baked = Baked.read(component)
    if baked is None:
        raise BakedComponentError(f"{component.name} was not made by `mcp-code-portal bake`")
    if baked.fingerprint != GuestBuild(_HERE).fingerprint():
        packages = shlex.join(baked.requirements)
        raise BakedComponentError(
            f"{component.name} was baked by another version of mcp-code-portal: make it again with "
            f"`mcp-code-portal bake {packages} --out {component.name}`"
        )
    return baked


def bake(requirements: Sequence[str], target: Path, progress: Callable[[str], None]) -> Baked:
    """Write a component to `target` that holds what every sandbox has, the packages of `requirements`, and theirs.

    A requirement is what pip takes: a name, perhaps with versions, or the path of a wheel. pip finds it where it is
    configured to. Takes half a minute, and needs this package's extra `bake`. Raises BakeError.
    """
    for tool in ("pip", "componentize_py"):
        if importlib.util.find_spec(tool) is None:
            raise BakeToolsError(f"{tool} is not installed")
    common = installed_packages()
    with tempfile.TemporaryDirectory() as folder:
        progress(f"looking for {', '.join(requirements)} and what they need")
        added = resolve(requirements, common, Path(folder))
        build = GuestBuild(_HERE)
        baked = Baked(
            requirements,
            build.fingerprint(),
            sorted((package.name, package.version) for package in added),
            sorted({module for package in added for module in _modules(package)}),
        )
        progress(f"building the component with {baked.listed()} (about 20 s)")
        build.build_with([*common, *added], target, baked.section())
    return baked


def installed_packages() -> list[Distribution]:
    """The distributions of `PACKAGES`, as this process would import them. Raises BakeToolsError: one is not there."""
    found = []
    for name, version in PACKAGES.items():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise BakeToolsError(f"the build needs {name}=={version}") from None
        if package.version != version:
            raise BakeToolsError(f"the build needs {name}=={version}, and {package.version} is installed")
        found.append(package)
    return found


def resolve(requirements: Sequence[str], common: Sequence[Distribution], folder: Path) -> list[Distribution]:
    """What `requirements` are and need besides the packages of `common`, whose versions are given. Raises BakeError."""
    wheels, constraints, target = folder / "wheels", folder / "constraints.txt", folder / "packages"
    wheels.mkdir()
    for package in common:
        # Some are on no index as pure wheels, so pip is shown them here.
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
        raise BakeError(f"pip did not find the packages in {_PIP_SECONDS} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("WARNING:")]
        raise BakeError(
            "pip could not find the packages. Only wheels of pure Python can be baked in, and the versions of what "
            "every sandbox has are fixed. pip said:\n" + "\n".join(lines)[-_SHOWN_CHARS:].strip()
        )
    names = {_normalized(package.name) for package in common}
    found = [
        package for package in distributions(path=[str(target)]) if _normalized(package.name) not in names
    ]
    for package in found:
        for path in package.files or ():
            if path.suffix in _NATIVE:
                what = f"{package.name} {package.version}, {path},"
                raise BakeError(f"{what} has native code, and only pure Python runs in the sandbox")
    return found


def _contents(package: Distribution) -> dict[str, bytes]:
    """What goes inside, by path: modules, data files, and what `importlib.metadata` can be asked for there."""
    contents = {
        str(path): Path(str(package.locate_file(path))).read_bytes() for path in _included_files(package)
    }
    information = f"{_normalized(package.name)}-{package.version}.dist-info"
    # The description, often the longest part, is of no use inside.
    headers, _, _ = (package.read_text("METADATA") or "").partition("\n\n")
    modules, entry_points = "\n".join(_modules(package)), package.read_text("entry_points.txt")
    texts = {"METADATA": headers + "\n", "top_level.txt": modules + "\n", "entry_points.txt": entry_points}
    return contents | {f"{information}/{name}": text.encode() for name, text in texts.items() if text}


def _modules(package: Distribution) -> list[str]:
    """What a script imports: the names on top."""
    tops = {path.parts[0].removesuffix(".py") for path in _included_files(package) if path.suffix == ".py"}
    return sorted(name for name in tops if name.isidentifier())


def _included_files(package: Distribution) -> Iterator[PurePosixPath]:
    for path in package.files or ():
        is_outside = path.is_absolute() or ".." in path.parts
        is_information = path.parts[0].endswith((".dist-info", ".data")) or "__pycache__" in path.parts
        if not (is_outside or is_information or path.name.endswith(_LEFT_OUT)):
            yield path


def _normalized(name: str) -> str:
    """The name of a package in the form in which any two spellings of it are equal."""
    return re.sub(r"[-_.]+", "_", name).lower()


def main() -> None:
    build = GuestBuild(_HERE)
    try:
        if not build.is_current:
            build.build(lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201  # a command prints
    except BakeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

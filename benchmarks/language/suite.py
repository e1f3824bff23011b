"""CPython's own tests, as files: from a folder, from Debian, or from a Python that is installed here."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEBIAN = "https://deb.debian.org/debian"
DEBIAN_SUITES = ("sid", "forky")
PACKAGES = ("libpython3.14-testsuite", "libpython3.14-stdlib", "libpython3.14-minimal")
"""The tests, and the library of that version with `test.support`; apt-get checks Debian's signatures."""
INSTALLED = ("python3.14", "python3.13", "python3.12")


@dataclass(frozen=True)
class Suite:
    """`folder` holds the package `test`, and perhaps the library; `source` says what it is, with its version."""

    folder: Path
    source: str

    def modules(self) -> list[str]:
        """Every file that may hold tests, as a module; a package's own file only if it holds some."""
        return sorted(self._modules())

    def count_tests(self, module: str) -> int:
        """Tests that a file writes down; those it makes or inherits are not counted."""
        try:
            tree = ast.parse(self._file(module).read_text("utf-8", "replace"))
        except SyntaxError:
            return 0
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        return sum(
            isinstance(item, kinds) and item.name.startswith("test") for node in classes for item in node.body
        )

    def link_into(self, folder: Path) -> None:
        """Show the suite's files in another folder. What has two names, nothing in the sandbox can write to."""

        def link(source: str, target: str) -> None:
            try:
                os.link(source, target)
            except OSError:
                shutil.copyfile(source, target)

        ignore = shutil.ignore_patterns(
            "__pycache__", "site-packages", "dist-packages", "*.so", "*.a", "*.pyc"
        )
        shutil.copytree(self.folder, folder, copy_function=link, ignore=ignore, symlinks=False)

    def _modules(self) -> Iterator[str]:
        """As CPython's runner finds them: other folders of `test` are what its own tests work with."""
        for path in (self.folder / "test").rglob("test_*"):
            parts = path.relative_to(self.folder).with_suffix("").parts
            name = ".".join(parts)
            if not parts[1].startswith("test_"):
                continue
            if path.suffix == ".py" or ((path / "__init__.py").exists() and self.count_tests(name)):
                yield name

    def _file(self, module: str) -> Path:
        path = self.folder.joinpath(*module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def find_suite(given: Path | None, cache: Path) -> Suite:
    """The folder that was given; else Debian's newest for 3.14; else the one of an installed Python, newest first.

    Raises:
        FileNotFoundError: There is none.
    """
    if given is not None:
        return Suite(given, _version_in(given))
    try:
        return from_debian(cache)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"Debian's test suite cannot be had ({error}); looking for an installed one", file=sys.stderr)
    for name in INSTALLED:
        if (found := of_installed(name)) is not None:
            return found
    raise FileNotFoundError("no test suite of CPython: name a folder that holds its package `test`")


def from_debian(cache: Path) -> Suite:
    """Debian's packages, unpacked in `cache`, once. Needs apt-get and dpkg-deb; nothing is installed."""
    unpacked, state = cache / "debian", cache / "apt"
    if not unpacked.exists():
        options = _apt_options(state)
        _run(["apt-get", *options, "update"], state)
        _run(["apt-get", *options, "download", *PACKAGES], state)
        partial = cache / "partial"
        for package in PACKAGES:
            _run(["dpkg-deb", "-x", str(_newest(state, package)), str(partial)], state)
        partial.rename(unpacked)
    name = _newest(state, PACKAGES[0]).name
    version = re.search(r"_([\d.]+)", name)
    return Suite(
        unpacked / "usr/lib/python3.14", f"CPython {version[1] if version else ''} (Debian's {name})"
    )


def of_installed(name: str) -> Suite | None:
    program = shutil.which(name)
    if program is None:
        return None
    code = "import platform, sysconfig; print(platform.python_version(), sysconfig.get_path('stdlib'))"
    try:
        output = _run([program, "-c", code], Path(tempfile.gettempdir()))
    except subprocess.CalledProcessError:
        return None  # one of pyenv's names without a program behind it
    version, _, folder = output.strip().partition(" ")
    has_tests = (Path(folder) / "test/test_grammar.py").exists()
    return Suite(Path(folder), f"CPython {version} (installed)") if has_tests else None


def _apt_options(state: Path) -> list[str]:
    """Of an apt that knows Debian's newest suites, and changes nothing outside `state`."""
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    sources = state / "sources.list"
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    sources.write_text(
        "".join(f"deb [signed-by={keyring}] {_mirror()} {suite} main\n" for suite in DEBIAN_SUITES)
    )
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state,
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _mirror() -> str:
    """The mirror that this system uses for Debian, else Debian's own."""
    for file in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources")):
        if file.is_file() and (found := re.search(r"\bhttps?://\S+/debian/?(?=\s)", file.read_text())):
            return found[0]
    return DEBIAN


def _newest(folder: Path, package: str) -> Path:
    return max(folder.glob(f"{package}_*.deb"), key=lambda path: path.stat().st_mtime)


def _version_in(folder: Path) -> str:
    return f"the folder {folder.name}"


def _run(command: list[str], cwd: Path) -> str:
    return subprocess.run(
        command,
        cwd=cwd,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout

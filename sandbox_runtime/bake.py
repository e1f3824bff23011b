"""Bakes further packages into a guest component of one's own, for scripts that need more than every sandbox has."""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox_runtime.baked import Baked
from sandbox_runtime.build_guest import GuestBuild, GuestBuildError
from sandbox_runtime.errors import BakeError, BakeToolsError
from sandbox_runtime.guest_packages import PackageError, installed_packages, modules_of
from sandbox_runtime.pure_wheels import resolve

_TOOLS = ("pip", "componentize_py")


def bake(requirements: Sequence[str], target: Path, progress: Callable[[str], None]) -> Baked:
    """Write a component to `target` that holds what every sandbox has, the packages of `requirements`, and theirs.

    A requirement is what pip takes: a name, perhaps with versions, or the path of a wheel. pip finds it where it is
    configured to. Takes half a minute, and needs this package's extra `bake`.

    Raises:
        BakeError: A package is not found or has native code, or the component cannot be built.
    """
    for tool in _TOOLS:
        if importlib.util.find_spec(tool) is None:
            raise BakeToolsError(f"{tool} is not installed")
    try:
        common = installed_packages()
    except PackageError as error:
        raise BakeToolsError(str(error)) from error
    with tempfile.TemporaryDirectory() as folder:
        progress(f"looking for {', '.join(requirements)} and what they need")
        added = resolve(requirements, common, Path(folder))
        build = GuestBuild(Path(__file__).resolve().parent)
        baked = Baked(
            tuple(requirements),
            build.fingerprint(),
            tuple(sorted((package.name, package.version) for package in added)),
            tuple(sorted({module for package in added for module in modules_of(package)})),
        )
        progress(f"building the component with {baked.listed()} (about 20 s)")
        try:
            build.build_with([*common, *added], target, baked.section())
        except GuestBuildError as error:
            raise BakeError(str(error)) from error
    return baked

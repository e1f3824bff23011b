"""Wheels made by hand, for what pip and the sandbox make of them."""

import zipfile
from collections.abc import Mapping
from pathlib import Path


def write_wheel(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    *,
    version: str = "1.0",
    requires: str = "",
    tag: str = "py3-none-any",
) -> Path:
    """A wheel that holds `files`, by their paths."""
    information = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    is_pure = "true" if tag.endswith("-any") else "false"
    written = {
        **files,
        f"{information}/METADATA": metadata,
        f"{information}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: {is_pure}\nTag: {tag}\n",
    }
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in written.items():
            wheel.writestr(file, content)
        wheel.writestr(f"{information}/RECORD", "".join(f"{file},,\n" for file in written))
    return path

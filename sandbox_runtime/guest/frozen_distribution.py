"""What `importlib.metadata` tells about the packages inside: names, versions, entry points."""

import importlib.metadata
import pathlib
import re
from collections.abc import Iterator

from sandbox_runtime.guest.frozen_files import PACKAGES, FrozenFiles

_SUFFIX = ".dist-info"


class FrozenDistribution(importlib.metadata.Distribution):
    """One package that was baked in."""

    def __init__(self, files: FrozenFiles, folder: str) -> None:
        self._files = files
        self._folder = folder

    def read_text(self, filename: str) -> str | None:
        path = f"{PACKAGES}/{self._folder}/{filename}"
        return self._files.read(path).decode() if path in self._files else None

    def locate_file(self, path: object) -> pathlib.PurePosixPath:  # type: ignore[override]
        return pathlib.PurePosixPath(PACKAGES, str(path))


def distributions(files: FrozenFiles, name: str | None) -> Iterator[FrozenDistribution]:
    """The distribution of a name, however that is spelled, or all."""
    wanted = None if name is None else re.sub(r"[-_.]+", "_", name).lower()
    for folder in files.names(PACKAGES):
        if folder.endswith(_SUFFIX) and wanted in (None, folder.partition("-")[0]):
            yield FrozenDistribution(files, folder)

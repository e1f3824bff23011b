"""Data files carried inside the component, as `importlib.resources` and `pkgutil.get_data` read them."""

import errno
import io
import os
from collections.abc import Collection, Iterator
from importlib.resources.abc import Traversable, TraversableResources
from typing import Any

PACKAGES = "/packages"
"""Where the packages seem to lie."""


class FrozenFiles:
    """Files in memory, by their absolute paths."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def freeze(self, folder: str, path: str) -> None:
        """Keep every file below `folder` that is no module, as if it lay below `path`."""
        for relative in relative_paths(folder):
            if not relative.endswith(".py"):
                with open(f"{folder}/{relative}", "rb") as file:
                    self._files[f"{path}/{relative}"] = file.read()

    def read(self, path: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: There is none.
        """
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def names(self, folder: str) -> list[str]:
        """What lies in a folder: the names of files and of further folders."""
        prefix = folder + "/"
        below = [path.removeprefix(prefix) for path in self._files if path.startswith(prefix)]
        return sorted({relative.partition("/")[0] for relative in below})

    def __contains__(self, path: str) -> bool:
        return path in self._files


class FrozenFile(Traversable):
    """A file or a folder, as `importlib.resources.files` hands it out."""

    def __init__(self, files: FrozenFiles, path: str) -> None:
        self._files = files
        self._path = path

    @property
    def name(self) -> str:
        return os.path.basename(self._path)

    def is_file(self) -> bool:
        return self._path in self._files

    def is_dir(self) -> bool:
        return bool(self._files.names(self._path))

    def iterdir(self) -> Iterator["FrozenFile"]:
        return (FrozenFile(self._files, f"{self._path}/{name}") for name in self._files.names(self._path))

    def joinpath(self, *descendants: str | os.PathLike[str]) -> "FrozenFile":
        return FrozenFile(self._files, os.path.normpath(os.path.join(self._path, *descendants)))

    def open(self, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        stream = io.BytesIO(self._files.read(self._path))
        return stream if "b" in mode else io.TextIOWrapper(stream, *args, **kwargs)

    def read_bytes(self) -> bytes:
        return self._files.read(self._path)

    def read_text(self, *args: Any, **kwargs: Any) -> str:
        text: str = self.open("r", *args, **kwargs).read()
        return text

    def __str__(self) -> str:
        return self._path


class FrozenReader(TraversableResources):
    """Reads what lies beside the modules of one package."""

    def __init__(self, files: FrozenFiles, folder: str) -> None:
        self._files = files
        self._folder = folder

    def files(self) -> FrozenFile:
        return FrozenFile(self._files, self._folder)


def relative_paths(folder: str, left_out: Collection[str] = ()) -> Iterator[str]:
    """The path of every file below `folder`, without files and folders of a name that is left out."""
    for entry in sorted(os.listdir(folder)):
        if entry in left_out:
            continue
        if os.path.isdir(f"{folder}/{entry}"):
            yield from (f"{entry}/{path}" for path in relative_paths(f"{folder}/{entry}", left_out))
        else:
            yield entry

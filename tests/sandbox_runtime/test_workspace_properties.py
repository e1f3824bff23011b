"""Whatever operations come in whatever order: what is counted is what is there, and it is never more than it may be."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_runtime.grants.folder import FileError
from sandbox_runtime.grants.workspace import Quota, Workspace

TOTAL_BYTES = 1200
TOTAL_FILES = 2
FILE_BYTES = 1000

Names: TypeAlias = tuple[str, ...]
Step: TypeAlias = tuple[str, Names, int | Names | None]
paths = st.sampled_from([("a",), ("b",), ("c",), ("c", "a"), ("c", "b")])
steps = st.one_of(
    st.tuples(st.sampled_from(["create", "make_folder", "remove", "remove_folder"]), paths, st.none()),
    st.tuples(st.sampled_from(["write", "append"]), paths, st.integers(0, FILE_BYTES + 100)),
    st.tuples(st.just("rename"), paths, paths),
)


def take(workspace: Workspace, step: Step) -> None:
    name, path, more = step
    if name == "create":
        workspace.create(path, must_be_new=False)
    elif isinstance(more, int):
        getattr(workspace, name)(path, bytes(more))
    elif more is not None:
        workspace.rename(path, more)
    else:
        getattr(workspace, name)(path)


def there(folder: Path) -> tuple[int, int]:
    """Bytes of all files, and how many files and folders there are."""
    found = list(folder.rglob("*"))
    return sum(path.stat().st_size for path in found if path.is_file()), len(found)


@given(st.lists(steps, min_size=10, max_size=60))
def test_there_is_never_more_than_there_may_be_and_always_room_for_the_rest(done: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        quota = Quota(TOTAL_BYTES, TOTAL_FILES, str)
        workspace = Workspace(folder, quota, FILE_BYTES, "file_bytes")
        for step in done:
            with suppress(FileError, OSError):
                take(workspace, step)
            used_bytes, used_files = there(folder)
            assert used_bytes <= TOTAL_BYTES and used_files <= TOTAL_FILES
        used_bytes, used_files = there(folder)
        quota.check(TOTAL_BYTES - used_bytes, TOTAL_FILES - used_files)
        for more in ((TOTAL_BYTES - used_bytes + 1, 0), (0, TOTAL_FILES - used_files + 1)):
            with pytest.raises(FileError):
                quota.check(*more)

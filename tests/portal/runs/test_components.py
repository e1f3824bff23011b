"""The guest component in which a run began is kept as long as the run may need it."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from portal.runs.components import Components, components_folder
from sandbox_runtime.errors import RecordError

pytestmark = pytest.mark.anyio


async def test_component_is_kept_for_open_runs_and_deleted_after_them(tmp_path: Path) -> None:
    store, component = tmp_path / "runs.sqlite", tmp_path / "guest.wasm"
    component.write_bytes(b"wasm")
    async with AsyncExitStack() as stack:
        await Components(store, stack, print).keep(component, "old")
        component.unlink()  # an upgrade
        (tmp_path / "new.wasm").write_bytes(b"newer wasm")
        components = Components(store, stack, print)
        await components.keep(tmp_path / "new.wasm", "new")
        kept = components_folder(store)
        assert (kept / "old.wasm").read_bytes() == b"wasm"
        components.delete_others({"old"})
        assert {path.name for path in kept.iterdir()} == {"old.wasm", "new.wasm"}
        components.delete_others(set())
        assert {path.name for path in kept.iterdir()} == {"new.wasm"}


async def test_run_whose_component_is_gone_cannot_go_on(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        components = Components(tmp_path / "runs.sqlite", stack, print)
        with pytest.raises(RecordError, match="not kept here"):
            await components.sandbox("0" * 64)

"""The guest component in which a run began is kept as long as the run may need it."""

import hashlib
import threading
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from portal.records.store.records import DatabaseError, Seal, Sealed
from portal.records.store.run_tables import RunTables
from portal.runs.components import Components
from sandbox_runtime.aot import component_sha256, guest_component
from sandbox_runtime.errors import RecordError, ReplayInterruptedError
from sandbox_runtime.kernels import KERNELS
from tests.portal.peers import opened
from tests.portal.rows import Tables, store_of
from tests.portal.runs.test_waiting import ASKS, KEPT, approved, git, waiting


async def test_component_is_kept_for_open_runs_and_deleted_after_them(tmp_path: Path) -> None:
    store, component = tmp_path / "runs.sqlite", tmp_path / "guest.wasm"
    component.write_bytes(b"wasm")
    async with AsyncExitStack() as stack:
        await Components(store, stack, print).keep(component, "old")
        component.unlink()  # an upgrade
        (tmp_path / "new.wasm").write_bytes(b"newer wasm")
        components = Components(store, stack, print)
        await components.keep(tmp_path / "new.wasm", "new")
        assert (store / "old.wasm").read_bytes() == b"wasm"
        await components.delete_others(set(), has_replicas=True)
        await components.delete_others({"old"})
        assert {path.name for path in store.iterdir()} == {"old.wasm", "new.wasm"}
        await components.delete_others(set())
        assert {path.name for path in store.iterdir()} == {"new.wasm"}
        with pytest.raises(RecordError, match="not kept here"):
            await components.sandbox("0" * 64, PYTHON)


async def test_component_is_compressed_before_the_transaction_that_shares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres ends a transaction that is idle for five seconds, and a busy machine compresses 33 MB for longer."""
    component, content = tmp_path / "guest.wasm", b"wasm" * 1_000
    component.write_bytes(content)
    close, within = Seal.close, list[bool]()

    def noted(self: Seal, given: bytes) -> Sealed:
        if given == content:
            within.append(threading.current_thread() in (store._thread, threading.main_thread()))
        return close(self, given)

    monkeypatch.setattr(Seal, "close", noted)
    async with store_of(Tables(tmp_path), "a key of 16 bytes") as store, AsyncExitStack() as stack:
        components = Components(tmp_path / "components", stack, print, store)
        for _ in range(2):  # it is there, the second time
            await components.keep(component, "a")
        assert await store.read(partial(RunTables.get, kind="component", owner="", name="a")) == content
    assert within == [False]


async def test_component_that_cannot_be_fetched_now_is_fetched_later(tmp_path: Path) -> None:
    content, folder = guest_component(KERNELS[PYTHON]).read_bytes(), tmp_path / "state" / "components"
    sha256 = hashlib.sha256(content).hexdigest()
    answers: list[Any] = [DatabaseError("away"), content, content]

    async def read(work: Any) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)

    (tmp_path / "state").touch()  # so that nothing can be written there
    async with AsyncExitStack() as stack:
        components = Components(folder, stack, print, SimpleNamespace(read=read))
        for _ in range(2):
            with pytest.raises(ReplayInterruptedError) as raised:
                await components.sandbox(sha256, PYTHON)
            assert raised.value.code == "sandbox_busy"  # which postpones the run
        (tmp_path / "state").unlink()
        assert (await components.sandbox(sha256, PYTHON)).component == sha256


SCRIPTS = {
    PYTHON: "import random\na = await git.push(n=random.random())\nawait git.merge(id=7)\na",
    JAVASCRIPT: "const a = await git.push({n: Math.random()});\nawait git.merge({id: 7});\na",
}


# Python's takes a processor ten seconds to compile, and differs in nothing that the portal does.
@pytest.mark.parametrize("kernel", [pytest.param(PYTHON, marks=pytest.mark.release), JAVASCRIPT])
async def test_run_goes_on_in_the_component_in_which_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: KernelName
) -> None:
    present = guest_component(KERNELS[kernel])
    earlier = tmp_path / "earlier.wasm"
    # A custom section, which changes nothing but the hash.
    earlier.write_bytes(present.read_bytes() + b"\x00\x08\x07earlier")
    kept = tmp_path / "runs.sqlite.components" / f"{component_sha256(earlier)}.wasm"
    sections: dict[str, Any] = {
        "capabilities": ASKS,
        "runs": KEPT,
        "server": {"kernels": {JAVASCRIPT: True}},
        "has_own_sandbox": True,
    }
    peer = git()
    with monkeypatch.context() as before_the_upgrade:
        for module in ("portal.app.kernels", "sandbox_runtime.sandbox"):
            before_the_upgrade.setattr(
                f"{module}.guest_component",
                lambda of: earlier if of.name == kernel else guest_component(of),
            )
        async with opened(tmp_path, {"git": peer}, **sections) as portal:
            await portal.portal.sandbox(kernel)  # compiled anew, which takes long on a busy machine
            run = (await waiting(portal, SCRIPTS[kernel], kernel=kernel))["run_id"]
    earlier.unlink()
    assert kept.exists()
    async with opened(tmp_path, {"git": peer}, **sections) as portal:
        done = await approved(portal, run)
        (pushed,) = (arguments for name, arguments in peer.calls if name == "push")
        assert done["result"] == pushed
        assert [name for name, _ in peer.calls] == ["push", "merge"]
        assert await portal.result_of("1", kernel=kernel) == 1

"""Whatever a portal says, a worker refuses it or ends: none stays behind, and none says what it should not."""

from collections.abc import AsyncIterator
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_runtime.frames import COUNT, RUN_HEADER, ToWorker, frame
from sandbox_runtime.launchers import Launcher, default_launcher
from tests.depth import depth
from tests.sandbox_runtime.fuzz.noise import conversation, to_worker
from tests.sandbox_runtime.fuzz.worker_end import WorkerTrial, compiled_guest

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def launcher(anyio_backend: str) -> AsyncIterator[Launcher]:
    launcher = default_launcher(compiled_guest())
    yield launcher
    await launcher.close()


CONVERSATIONS = st.randoms(use_true_random=False).map(partial(conversation, say=to_worker, most=12))


@depth(0.3)
@given(said=CONVERSATIONS)
async def test_no_message_of_a_portal_leaves_a_worker_hanging(
    launcher: Launcher, said: list[list[bytes]]
) -> None:
    trial = WorkerTrial(said)
    await trial.go(launcher)
    assert trial.faults == []


async def test_workers_answer_some_of_it(launcher: Launcher) -> None:
    trials = [WorkerTrial(conversation(Random(seed), to_worker, 12)) for seed in range(20)]
    for trial in trials:
        await trial.go(launcher)
    assert [trial.faults for trial in trials if trial.faults] == []
    assert sum(trial.answers for trial in trials) > len(trials), "all came up, and some answered more"


async def test_text_over_which_the_engine_panics_ends_the_worker_at_once(launcher: Launcher) -> None:
    header = RUN_HEADER.pack(10.0, 64 << 20, 0, 0, 0, False)
    trial = WorkerTrial([[frame(ToWorker.PREPARE, header, COUNT.pack(0), b"\xff")]], hangs_up=False)
    await trial.go(launcher)
    assert (trial.faults, trial.answers) == ([], 1)

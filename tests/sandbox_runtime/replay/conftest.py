"""A way to record and replay in the open sandbox."""

import pytest

from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.replay.recorder import Recorder


@pytest.fixture
def recorded(sandbox: Sandbox) -> Recorder:
    return Recorder(sandbox)

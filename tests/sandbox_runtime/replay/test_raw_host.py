"""A script that talks to the host itself is recorded like any other, and cannot tell that it is replayed."""

import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.replay.recorder import Recorder

pytestmark = pytest.mark.anyio

RAW = "from wit_world.imports import host\nimport time\n"
SCRIPTS = {
    "a batch": "host.exchange('9000 git.git_log {}', 1000)",
    "waiting for nothing": "[host.exchange('', 3), host.exchange('', 0), time.time()]",
    "batches and clocks": "[(host.exchange(f'{i} git.git_log {{}}', 2000), time.time()) for i in range(9000, 9005)]",
    "news of many": "told = [host.exchange('\\n'.join(f'{i} git.git_log {{}}' for i in range(9000, 9030)), 5)]\n"
    "while sum(t.count('chance') for t in told) < 30: told.append(host.exchange('', 5))\ntold",
    "cancelling": "[host.exchange('9000 git.hangs {}', 1), host.exchange('9000', 1)]",
    "printing and emitting": "host.print('raw')\nhost.emit('{\"type\": \"x\"}')\nhost.emit('none')\nhost.print('é')",
    "broken batch": "host.exchange('what is this', 1)",
    "a number used twice": "[host.exchange('9000 a.b {}', 500), host.exchange('9000 a.b {}', 500)]",
    "arguments that are none": "host.exchange('9000 a.b x', 500)",
    "too long": "host.exchange('9' * (4 << 20), 5)",
    "unknown time": "host.exchange('', 2**40) if False else host.exchange('', 1)",
    "many looks": "x = [time.monotonic() for _ in range(20000)]\nlen(set(x)) < 20000",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_raw_talk_is_replayed(recorded: Recorder, script: str) -> None:
    await recorded.and_replay(RAW + script, limits=Limits(wall_seconds=20))


async def test_script_cannot_tell_a_replay_from_a_live_run(recorded: Recorder) -> None:
    """It measures what it can: waits, clocks, places, and how often a busy loop turns between two looks."""
    script = (
        RAW
        + """
import sys, gc, os
before = time.monotonic()
host.exchange('', 20)
waited = time.monotonic() - before
turns, until = 0, time.monotonic() + 0.02
while time.monotonic() < until: turns += 1
state = [sorted(os.environ), sys.argv, gc.get_count(), id(object()), len(sys.modules), sys.getallocatedblocks()]
[waited, turns, state]"""
    )
    result = await recorded.and_replay(script)
    assert result.error is None

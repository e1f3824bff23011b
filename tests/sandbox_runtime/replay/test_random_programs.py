"""Whatever a script awaits, in whatever way, however its calls end, and wherever it goes on: its replay is the same."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.grants import Limits
from sandbox_runtime.replay import Repetition, replay, resume
from sandbox_runtime.sandbox import Sandbox
from tests.depth import depth
from tests.sandbox_runtime.replay.recorder import ChancePort, Recorder, facts
from tests.sandbox_runtime.running import where

LIMITS = Limits(tool_calls=60, parallel_calls=4, argument_bytes=2000, wall_seconds=60)
ENDS = ("script_error", "upstream_down", "tool_calls_limit")
PRELUDE = """\
import datetime, os, random, secrets, time, uuid
out = []
class A: pass
"""
CALLS = st.sampled_from(
    [
        "git.git_log(i=len(out))",
        "git.git_log(r=random.random())",
        "git.git_log(t=time.time())",
        "git.git_log(x='y' * 3000)",
        "git.fails()",
        "git.hangs()",
        "asyncio.sleep(random.random() / 500)",
        "asyncio.sleep(0)",
    ]
)
MANY = st.lists(CALLS, min_size=1, max_size=5).map(", ".join)
MILLISECONDS = st.integers(0, 6)
PLAIN = st.sampled_from(
    [
        "out.append(random.random())",
        "out.append(time.time())",
        "out.append(time.monotonic())",
        "out.append(str(uuid.uuid1()))",
        "out.append(secrets.token_hex(4))",
        "out.append(os.urandom(3).hex())",
        "out.append(id(object()))",
        "out.append(repr(A()))",
        "out.append([x.__hash__() for x in {A(), A(), A()}])",
        "print(len(out), random.random())",
        "portal.emit({'type': 'text', 'text': str(len(out))})",
        "time.sleep(0.001)",
        "until = time.monotonic() + 0.002\nwhile time.monotonic() < until: pass",
    ]
)


def block(head: str, body: str) -> str:
    return f"{head}\n{textwrap.indent(body, '    ')}"


def caught(body: str) -> str:
    return (
        block("try:", f"async with asyncio.timeout(0.006):\n{textwrap.indent(body, '    ')}")
        + "\nexcept* (ToolError, TimeoutError) as errors:\n    out.append(repr(errors.exceptions))"
    )


WAITS = st.one_of(
    CALLS.map(lambda call: f"out.append(await {call})"),
    MANY.map(lambda many: f"out.extend(await asyncio.gather({many}, return_exceptions=True))"),
    MANY.map(lambda many: f"for answer in asyncio.as_completed([{many}]): out.append(await answer)"),
    MANY.map(
        lambda many: (
            f"done, left = await asyncio.wait([asyncio.ensure_future(c) for c in [{many}]], "
            "return_when=asyncio.FIRST_COMPLETED)\nout.append([len(done), len(left)])"
        )
    ),
    MANY.map(
        lambda many: (
            f"async with asyncio.TaskGroup() as group:\n    tasks = [group.create_task(c) for c in [{many}]]"
        )
    ),
    st.tuples(CALLS, MILLISECONDS).map(
        lambda told: f"out.append(await asyncio.wait_for({told[0]}, {told[1]} / 1000))"
    ),
    CALLS.map(
        lambda call: f"task = asyncio.ensure_future({call})\nawait git.git_log()\nout.append(task.cancel())"
    ),
    CALLS.map(
        lambda call: (
            f"task = asyncio.ensure_future({call})\nfor _ in range(40): await asyncio.sleep(0)\ntask.cancel()"
        )
    ),
).map(caught)
STATEMENTS = st.recursive(
    PLAIN | WAITS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        .map("\n".join)
        .flatmap(
            lambda body: st.sampled_from(
                [
                    block("for _ in range(2):", body),
                    block("try:", body) + "\nfinally:\n    out.append(len(out))",
                    block("async def work():", body) + "\nawait asyncio.gather(work(), work())",
                ]
            )
        )
    ),
    max_leaves=5,
)
SCRIPTS = st.lists(STATEMENTS, min_size=1, max_size=6).map(
    lambda body: (
        PRELUDE + "\n".join(body) + "\n[out if len(repr(out)) < 5000 else len(out), repr(out)[:9000]][1]"
    )
)


@depth(0.3)
@given(script=SCRIPTS, part=st.floats(0, 0.99))
@pytest.mark.timeout(600)
async def test_program_that_was_resumed_anywhere_is_replayed_as_one_run(
    sandbox: Sandbox, script: str, part: float
) -> None:
    ended, record = await Recorder(sandbox)(script, limits=LIMITS)
    assert ended.error is None or ended.error.code in ENDS, script
    beginning = record.until(int(part * len(record.events)))
    repetition = Repetition(beginning, goes_on=True)
    result = await resume(sandbox, repetition, where, ChancePort())
    assert result.error is None or result.error.code in (*ENDS, "outcome_unknown"), script
    assert repetition.record is not None
    assert facts(await replay(sandbox, repetition.record, where)) == facts(result)

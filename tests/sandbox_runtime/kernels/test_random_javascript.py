"""Whatever a script in JavaScript awaits, in whatever way, and however its calls end: its replay is the same run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.grants import Limits
from manifests.kernels import JAVASCRIPT
from sandbox_runtime.sandbox import Sandbox
from tests.one_sandbox import OneSandbox
from tests.sandbox_runtime.replay.recorder import ChancePort, Recorder

pytestmark = pytest.mark.timeout(900)

# As many at once as there are: a call that hangs keeps its place, because nothing cancels it.
LIMITS = Limits(tool_calls=60, parallel_calls=64, argument_bytes=2000, wall_seconds=20)
ENDS = ("script_error", "upstream_down", "tool_calls_limit", "argument_limit")
CALLS = st.sampled_from(
    [
        "git.git_log({i: out.length})",
        "git.git_log({r: Math.random()})",
        "git.git_log({t: Date.now()})",
        "git.git_log({x: 'y'.repeat(3000)})",
        "git.fails({})",
        "Promise.race([git.hangs({}), pause(Math.random() * 3)])",
        "pause(Math.random() * 2)",
        "null",
    ]
)
MANY = st.lists(CALLS, min_size=1, max_size=5).map(", ".join)
PLAIN = st.sampled_from(
    [
        "out.push(Math.random())",
        "out.push(Date.now(), performance.now())",
        "out.push(crypto.randomUUID())",
        "out.push([...crypto.getRandomValues(new Uint8Array(3))])",
        "out.push(new Date().toString())",
        "out.push([...new Set([{}, [], Symbol('s')])].map(String))",
        "console.log(out.length, Math.random())",
        "portal.emit({type: 'text', text: String(out.length)})",
        "for (const until = Date.now() + 2; Date.now() < until;);",
        "setTimeout(() => out.push(Math.random()), Math.random() * 3)",
        "queueMicrotask(() => out.push('microtask'))",
        "git.git_log({})",
    ]
)
WAITS = st.one_of(
    CALLS.map(lambda call: f"out.push(await {call})"),
    MANY.map(lambda many: f"out.push(...await Promise.allSettled([{many}]))"),
    MANY.map(lambda many: f"out.push(await Promise.race([{many}]))"),
    MANY.map(lambda many: f"out.push(await Promise.any([{many}]))"),
    MANY.map(lambda many: f"for await (const each of [{many}]) out.push(each)"),
    MANY.map(lambda many: f"await Promise.all([{many}].map(async (each) => out.push(await each)))"),
).map(lambda body: f"try {{ {body} }} catch (e) {{ out.push(`${{e}}`) }}")
STATEMENTS = st.recursive(
    PLAIN | WAITS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        .map(";\n".join)
        .flatmap(
            lambda body: st.sampled_from(
                [
                    f"for (let i = 0; i < 2; i++) {{ {body} }}",
                    f"try {{ {body} }} finally {{ out.push(out.length) }}",
                    f"{{ const work = async () => {{ {body} }}; await Promise.all([work(), work()]) }}",
                ]
            )
        )
    ),
    max_leaves=5,
)
SCRIPTS = st.lists(STATEMENTS, min_size=1, max_size=6).map(
    lambda body: (
        "const out = [], pause = (ms) => new Promise((done) => setTimeout(done, ms));\n"
        + ";\n".join(body)
        + ";\nJSON.stringify(out).slice(0, 9000)"
    )
)


@pytest.fixture(scope="session")
async def sandbox(one: OneSandbox) -> Sandbox:
    return await one.opened(JAVASCRIPT)


@given(script=SCRIPTS)
async def test_replay_of_any_script_is_the_same_run(sandbox: Sandbox, script: str) -> None:
    result = await Recorder(sandbox).and_replay(script, limits=LIMITS, port=ChancePort())
    assert result.error is None or result.error.code in ENDS, (script, result.error)

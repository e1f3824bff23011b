"""Ways out that scripts in JavaScript know: none reaches the host, a call without a grant, or the next script."""

from collections.abc import AsyncIterator

import pytest

from manifests.grants import Limits
from manifests.kernels import JAVASCRIPT
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.sandbox import open_sandbox
from tests.sandbox_runtime.running import EchoPort, Runner

pytestmark = pytest.mark.anyio

SMALL = Limits(memory_mib=64, cpu_seconds=1, wall_seconds=5)


@pytest.fixture(scope="module")
async def run() -> AsyncIterator[Runner]:
    async with open_sandbox(workers=1, kernel=KERNELS[JAVASCRIPT], progress=print) as sandbox:
        yield Runner(sandbox)


@pytest.mark.parametrize(
    "script",
    [
        "[typeof process, typeof require, typeof fetch, typeof std, typeof os, typeof Deno, typeof __host].join()",
        "this?.constructor?.constructor('return typeof process')()",
        "(() => {}).constructor('return typeof require')()",
        "(async () => {}).constructor('return typeof std')()",
        "git.git_log.constructor.constructor('return typeof os')()",
        "['acorn', 'analysis', 'host', 'exports', 'module'].map((name) => typeof globalThis[name]).join()",
    ],
)
async def test_no_constructor_walks_to_a_host(run: Runner, script: str) -> None:
    value = await run.value(script)
    assert isinstance(value, str) and {*value.split(",")} == {"undefined"}


@pytest.mark.parametrize(
    "module", ["fs", "std", "os", "node:child_process", "/etc/passwd", "data:text/javascript,1"]
)
async def test_no_module_is_loaded(run: Runner, module: str) -> None:
    assert (
        await run.error(f"const load = new Function('name', 'return import(name)');\nawait load({module!r})")
    ).code


@pytest.mark.parametrize(
    "script",
    [
        "const f = () => f();\nf()",
        "const o = {toString() { return `${o}` }};\n`${o}`",
        "const p = new Proxy({}, {get: (_, key) => p[key]});\np.x",
        "(0, eval)('['.repeat(100000))",
        "JSON.parse('['.repeat(1e6))",
        "let a = []; for (let i = 0; i < 1e6; i++) a = [a];\nJSON.stringify(a)",
        "new RegExp('('.repeat(1e5) + ')'.repeat(1e5))",
        "/^(([a-z])+.)+[A-Z]([a-z])+$/.test('a'.repeat(50))",
        "2n ** (2n ** 30n)",
        "let n = 3n; for (;;) n *= n;",
        "'x'.repeat(2 ** 29).repeat(2 ** 29)",
        "new Array(2 ** 32 - 1).fill(0)",
        "new ArrayBuffer(2 ** 31)",
        "for (;;) await null;",
        "const again = () => setTimeout(again, 0); again(); await new Promise(() => {})",
        "for (;;) globalThis[`x${Math.random()}`] = {};",
    ],
)
async def test_bomb_ends_and_the_next_script_runs(run: Runner, script: str) -> None:
    await run.error(script, limits=SMALL)
    assert await run.value("1 + 1") == 2


@pytest.mark.parametrize(
    "script",
    [
        "git['git_log 1 x.y {}\\n2 git.push']({})",
        "git['a\\n7 git.git_push {}']?.({})",
        "tools['git.git_log {}\\n9 x']?.f({})",
        "Object.defineProperty(String.prototype, 'includes', {value: () => true}); await git['x y']?.({})",
    ],
)
async def test_name_cannot_forge_a_line_of_the_protocol(run: Runner, script: str) -> None:
    port = EchoPort()
    await run(script, port=port)
    assert not port.calls
    assert await run.value("await git.git_log({count: 1})") == {"count": 1}


@pytest.mark.parametrize(
    "script",
    [
        "Object.prototype.then = (done) => done(7); Array.prototype.join = () => '9 git.git_push {}'; 1",
        "JSON.stringify = () => '!'; JSON.parse = () => 5; Array.prototype[Symbol.iterator] = null; 1",
        "Object.defineProperty(Object.prototype, 'code', {get() { throw 1 }, set() {}}); throw new ToolError()",
        "Error.prepareStackTrace = () => { for (;;); }; null.x",
        "Object.freeze(Object.prototype); Promise.prototype.then = null; await git.git_log({})",
    ],
)
async def test_broken_prototypes_hurt_only_their_own_run(run: Runner, script: str) -> None:
    await run(script, limits=SMALL)
    assert await run.value("const [a] = [await git.git_log({count: 1})];\nJSON.parse(JSON.stringify(a))") == {
        "count": 1
    }

"""Scripts that are work to read: nothing of them runs, reading them ends at a limit, and no other script waits."""

import asyncio
from collections.abc import Callable

import pytest

from manifests.grants import Limits
from sandbox_runtime.result import Prepared
from tests.sandbox_runtime.running import NAMESPACES, EchoPort, Runner, where
from tests.security.hostile import MOST_SECONDS, watched

pytestmark = pytest.mark.anyio

TIGHT = Limits(cpu_seconds=0.2)
Repeated = Callable[[int], str]

COMPUTED: dict[str, Repeated] = {
    "calls": lambda n: "git.git_log()\n" * n,
    "calls_in_a_call": lambda n: "f(" + "*git.git_log()," * n + ")",
    "names": lambda n: "".join(f"é{i} = é{i + 1}\n" for i in range(n)),
    "values_that_flow": lambda n: "x = git.git_log()\n" + "if a:\n y = x\nelse:\n y = z\nx = y\n" * n,
    "values_that_fail": lambda n: (
        "x = git.git_log()\n" + "try:\n x = y\nexcept A:\n y = x\nfinally:\n z = x\n" * n
    ),
    "methods": lambda n: "".join(f"class A{i}:\n def m(self): return self.m(git.a())\n" for i in range(n)),
    "imports": lambda n: "from tools import *\n" * n,
}
DEEP: dict[str, Repeated] = {
    "sum": lambda n: "1" + " + 1" * n,
    "calls_of_calls": lambda n: "f" + "()" * n,
    "brackets": lambda n: "(" * n + ")" * n,
    "signs": lambda n: "-" * n + "1",
}


async def prepared(run: Runner, script: str, limits: Limits) -> Prepared:
    async with asyncio.timeout(60), watched() as delay, run.sandbox.run(limits, where) as opened:
        told = await opened.prepare(script, NAMESPACES)
        if told.error is not None:
            result = await opened.execute({}, EchoPort())
            assert (result.error, result.stdout) == (told.error, "")
    assert delay.seconds < MOST_SECONDS
    return told


@pytest.mark.parametrize("name", COMPUTED)
async def test_script_that_is_long_work_to_read_ends_at_its_limit(run: Runner, name: str) -> None:
    told = await prepared(run, COMPUTED[name](12_000), TIGHT)
    assert told.error.code == "cpu_limit"
    assert where("cpu_seconds") in told.error.message
    assert await run.value("1") == 1


@pytest.mark.parametrize("name", DEEP)
async def test_script_that_is_too_deep_is_refused(run: Runner, name: str) -> None:
    told = await prepared(run, DEEP[name](50_000), Limits())
    assert told.error.code in ("script_error", "syntax_error")
    assert await run.value("1") == 1


async def test_script_that_fills_the_memory_is_told_so(run: Runner) -> None:
    told = await prepared(run, "a = b\n" * 150_000, Limits(memory_mib=64))
    assert told.error.code == "memory_limit"
    assert where("memory_mib") in told.error.message


@pytest.mark.parametrize("name", [*COMPUTED, *DEEP])
async def test_short_script_of_the_kind_is_read(run: Runner, name: str) -> None:
    assert (await prepared(run, (COMPUTED | DEEP)[name](3), Limits())).error is None

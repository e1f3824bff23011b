"""Sessions keep what a run defined; nothing else does, and an ended session is reported."""

import asyncio

import pytest

from manifests.grants import Limits
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.sandbox import Sandbox, Session
from tests.sandbox_runtime.running import EchoPort, Runner, where


async def test_iterator_is_not_read_as_the_value_of_its_assignment(run: Runner, session: Session) -> None:
    result = await run("rows = {'it': iter([1, 2])}", session=session)
    assert result.value is None and "read only once" in result.notices[0]
    assert (await run("list(rows['it'])", session=session)).value == [1, 2]


async def test_output_belongs_to_the_run_that_wrote_it(run: Runner, session: Session) -> None:
    wrapped = "import io, sys\nsys.stdout.reconfigure(encoding='utf-8')\n"
    wrapped += "sys.stdout = io.TextIOWrapper(sys.stdout.buffer)\n"
    written = [
        (await run(f"{first}print({n})", session=session)).stdout for n, first in enumerate((wrapped, ""))
    ]
    assert written == ["0\n", "1\n"]


async def test_random_numbers_differ_though_the_first_script_did_not_run(
    run: Runner, session: Session
) -> None:
    other = await run.sandbox.open_session()
    drawn = []
    for each in (session, other):
        assert (await run("def f(:", session=each)).error is not None
        drawn += [(await run("import random\nrandom.random()", session=each)).value for _ in range(2)]
    other.close()
    assert len(set(drawn)) == 4


@pytest.mark.parametrize("script", ["import os\nos.abort()", "await git.hangs()"])
async def test_broken_or_stopped_session_is_gone_and_told(run: Runner, session: Session, script: str) -> None:
    await run.error(script, session=session, limits=Limits(cpu_seconds=0.1, wall_seconds=0.5))
    assert not session.alive
    async with run.sandbox.run(Limits(), where, session) as later:
        prepared = await later.prepare("1", ())
    assert prepared.error is not None
    assert prepared.error.code == "worker_lost"


async def test_calls_of_an_earlier_run_do_not_reach_a_later_one(run: Runner, session: Session) -> None:
    first, second = EchoPort(), EchoPort()
    await run(
        "import asyncio\nold = asyncio.create_task(git.hangs())\nawait git.git_log()",
        session=session,
        port=first,
    )
    result = await run("old.cancelled(), await git.git_log(count=2)", session=session, port=second)
    assert result.value == [True, {"count": 2}]
    assert [call.function for call in second.calls] == ["git.git_log"]


async def test_namespaces_are_those_of_the_run(sandbox: Sandbox, session: Session) -> None:
    async def names(script: str, namespaces: tuple[str, ...]) -> object:
        async with sandbox.run(Limits(), where, session) as run:
            await run.prepare(script, namespaces)
            result = await run.execute({}, EchoPort())
        return result.value if result.error is None else result.error.code

    assert await names("import git\nawait git.git_log(count=1)", ("git",)) == {"count": 1}
    assert await names("import tools, sys\n[dir(tools), 'git' in sys.modules]", ("files",)) == [
        ["files"],
        False,
    ]


async def test_runs_of_one_session_take_turns(run: Runner, session: Session) -> None:
    await run("seen = []", session=session)
    script = "import asyncio\nseen.append('in')\nawait asyncio.sleep(0.01)\nseen.append('out')"
    await asyncio.gather(*(run(script, session=session) for _ in range(3)))
    assert (await run("seen", session=session)).value == ["in", "out"] * 3


async def test_session_keeps_variables_beside_those_granted(
    run: Runner, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTAL_SECRET", "hunter2")
    granted = RunGrants(environment={"STAGE": "test", "ODD": "ä\n\"'= ☃"})
    setting = 'import os\nos.environ.update(MORE="x", STAGE="mine")'
    assert (await run(setting, session=session, grants=granted)).error is None
    kept = (await run("dict(os.environ)", session=session, grants=granted)).value
    assert kept == {**granted.environment, "MORE": "x"}


async def test_id_is_that_of_the_current_run_and_cannot_be_changed(run: Runner, session: Session) -> None:
    async def value(script: str, run_id: str) -> object:
        return (await run(script, session=session, grants=RunGrants(run_id=run_id))).value

    change = "from portal import run\ntry:\n    run.id = 'x'\nexcept AttributeError:\n    told = run.id\ntold"
    assert await value(change, "run_1") == "run_1"
    assert await value("[run.id, portal.run.id]", "run_2") == ["run_2", "run_2"]
    await run("portal.run = None", session=session)
    assert await value("run.id", "run_3") == "run_3"

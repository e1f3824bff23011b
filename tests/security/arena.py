"""Where attacks are carried out: a sandbox of two workers, with bait around it."""

import asyncio
from dataclasses import dataclass

from manifests.grants import Limits
from sandbox_runtime.calls import CallPort, Outcome, ToolCall
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, Session
from tests.sandbox_runtime.running import EchoPort, Runner
from tests.security.attack import REACHED, Attack, Fate
from tests.security.bait import Bait

WORKERS = 2
DEADLINE_SECONDS = 60


@dataclass(frozen=True)
class Arena:
    """Runs attacks and their twins, and looks around afterwards."""

    sandbox: Sandbox
    bait: Bait

    async def withstands(self, attack: Attack) -> RunResult:
        """The attack was reached, met its fate, and harmed nobody."""
        return await self.meets(attack.fate, attack.script, attack.limits)

    async def meets(
        self, fate: Fate, script: str, limits: Limits | None = None, session: Session | None = None
    ) -> RunResult:
        port = EchoPort()
        result = await self.run(script, limits, port, session)
        assert REACHED in result.stdout, result.error
        fate.check(result)
        assert self.bait.secret not in repr((result, port.calls))
        self.bait.check()
        await self.is_well()
        return result

    async def spares(self, attack: Attack) -> None:
        """The twin of the attack works."""
        result = await self.run(attack.harmless, attack.limits)
        assert (result.error, result.value) == (None, attack.value)

    async def run(
        self,
        script: str,
        limits: Limits | None = None,
        port: CallPort | None = None,
        session: Session | None = None,
    ) -> RunResult:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await Runner(self.sandbox)(
                self.bait.prelude + script, limits=limits, port=port, session=session
            )

    async def is_well(self) -> None:
        """All workers are there: as many scripts as there are workers meet each other."""
        everyone = asyncio.Barrier(WORKERS)

        async def meet(_: ToolCall) -> Outcome:
            await everyone.wait()
            return Outcome(40)

        scripts = (self.run("await git.git_log() + 2", port=meet) for _ in range(WORKERS))
        assert [(result.error, result.value) for result in await asyncio.gather(*scripts)] == [
            (None, 42)
        ] * WORKERS

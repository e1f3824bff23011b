"""Workers killed at random moments while runs are going on: which runs that cost, and which it must not."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchmarks.processes import children
from benchmarks.ways_to_end import Port
from manifests.grants import Limits
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from sandbox_runtime.worker_process import ForkLauncher

CLIENTS = 6
WORKERS = 4
MAX_PAUSE_SECONDS = 0.1
BUSY_SHARE = 0.8
_SCRIPT = """
import asyncio
total = 0
for i in range(5):
    total += (await bench.echo(i=i))["i"]
    await asyncio.sleep(0.002)
    sum(range(20_000))
total
"""


class Killing:
    """Kills worker processes, busy, idle or starting, each once; a run is lost if and only if its worker was killed.

    A worker may be killed after its run's answer was sent: that costs nobody anything.
    """

    def __init__(self, kills: int, chance: random.Random, save: Callable[[dict[str, Any]], None]) -> None:
        self._kills = kills
        self._chance = chance
        self._save = save
        self._killed: list[int] = []
        self._running: dict[int, int] = {}
        self._hit: dict[int, int] = {}
        self._results: Counter[str] = Counter()
        self._faults: list[str] = []
        self._runs = 0
        self._is_over = False

    async def go(self) -> None:
        started = time.monotonic()
        async with open_sandbox(workers=WORKERS, progress=print, launch=ForkLauncher) as sandbox:
            clients = [asyncio.create_task(self._client(sandbox)) for _ in range(CLIENTS)]
            while len(self._killed) < self._kills:
                await asyncio.sleep(self._chance.random() * MAX_PAUSE_SECONDS)
                self._kill_one()
                if len(self._killed) % 50 == 0:
                    self._save(self._report(time.monotonic() - started))
            self._is_over = True
            await asyncio.gather(*clients)
        self._save(self._report(time.monotonic() - started))

    def _kill_one(self) -> None:
        pid = self._chance.choice([pid for pid in self._aims() if pid not in self._killed] or [0])
        if not pid:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._killed.append(pid)
            if pid in self._running:
                self._hit[self._running[pid]] = pid

    def _aims(self) -> list[int]:
        """Mostly the workers that run a script, else any: idle, between two scripts, or starting."""
        if self._chance.random() < BUSY_SHARE:
            return list(self._running)
        return [worker for server in children(os.getpid()) for worker in children(server)]

    async def _client(self, sandbox: Sandbox) -> None:
        while not self._is_over:
            self._runs += 1
            await self._run(sandbox, self._runs)

    async def _run(self, sandbox: Sandbox, number: int) -> None:
        port = Port()
        async with sandbox.run(Limits(), str) as run:
            prepared = await run.prepare(_SCRIPT, ("bench",))
            if prepared.error is not None:
                self._faults.append(f"run {number} was not prepared: {prepared.error.message}")
                return
            pid = run.worker_pid or 0
            if pid in self._killed:
                self._hit[number] = pid  # after it was prepared, before it was noticed
            self._running[pid] = number
            try:
                result = await run.execute({}, port)
            finally:
                del self._running[pid]
        outcome = result.error.code if result.error is not None else "ok"
        self._results[outcome] += 1
        if outcome == "worker_lost" and number not in self._hit:
            self._faults.append(f"run {number} was lost, and its worker {pid} was not killed")
        elif outcome not in ("ok", "worker_lost") or (outcome == "ok" and result.value != 10):
            self._faults.append(f"run {number}: {outcome} {result.value!r:.60}")

    def _report(self, seconds: float) -> dict[str, Any]:
        return {
            "runs": self._runs,
            "seconds": round(seconds, 1),
            "killed": len(self._killed),
            "killed while they ran a script": len(self._hit),
            "finished": self._results["ok"],
            "lost": self._results["worker_lost"],
            "wrong answers": len(self._faults),
            "faults": self._faults[:50],
        }

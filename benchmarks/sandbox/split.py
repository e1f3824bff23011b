"""Where the CPU of a trivial run goes: the steps of a worker, one after the other, in this process (Linux).

The process has no border, no lock-down and no neighbours, so these are the steps' own costs.
"""

import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measuring import percentile
from benchmarks.sandbox.workload import TRIVIAL, Measures
from sandbox_runtime.frames import RunStart
from sandbox_runtime.worker.engine import GuestEngine, GuestInstance
from sandbox_runtime.worker.fork_server import learn_memory
from sandbox_runtime.worker.run_host import RunHost

ROUNDS = 400
SETTINGS = json.dumps(
    {"library": {}, "argument_bytes": 1 << 20, "result_bytes": 1 << 20, "seed": "any"}
).encode()
START = RunStart(10, 256 << 20, 1 << 20, 1 << 20, 1 << 20)


@dataclass
class Steps:
    """Milliseconds of CPU and page faults of each step, one value for each round."""

    cpu_ms: dict[str, list[float]] = field(default_factory=dict)
    faults: dict[str, list[float]] = field(default_factory=dict)

    def timed(self, name: str, step: Callable[[], Any]) -> Any:
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        started = time.process_time_ns()
        result = step()
        self.cpu_ms.setdefault(name, []).append((time.process_time_ns() - started) / 1e6)
        self.faults.setdefault(name, []).append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
        return result


def split(compiled: Path) -> Measures:
    host = RunHost()
    engine = GuestEngine(str(compiled), host)
    learn_memory(engine, host)
    run, new = Steps(), Steps()
    instance = engine.instantiate()
    for _ in range(ROUNDS):
        _run(engine, instance, host, run)
    instance.close()
    for _ in range(ROUNDS):
        _make(engine, new)
    measures: Measures = {}
    for kind, steps in (("trivial run", run), ("new instance", new)):
        times = {name: percentile(values, 0.5) for name, values in steps.cpu_ms.items()}
        measures |= {f"{kind}, {name}, CPU, p50, ms": value for name, value in times.items()}
        measures[f"{kind}, all steps, CPU, ms"] = sum(times.values())
        measures |= {f"{kind}, {name}, page faults": percentile(v, 0.5) for name, v in steps.faults.items()}
    return measures


def _run(engine: GuestEngine, instance: GuestInstance, host: RunHost, steps: Steps) -> None:
    host.begin(START, None)
    script = TRIVIAL.encode()
    steps.timed("prepare", lambda: instance.call("prepare", script, b"bench", most=1 << 16))
    steps.timed("execute", lambda: instance.call("execute", SETTINGS, most=1 << 16))
    assert steps.timed("restore", engine.memory.restore)


def _make(engine: GuestEngine, steps: Steps) -> None:
    """After a run that let the memory grow, or that was stopped."""
    instance: GuestInstance = steps.timed("instantiate", lambda: GuestInstance(engine))
    steps.timed("copy pages", engine.memory.adopt)
    steps.timed("wake", lambda: instance.call("wake"))
    steps.timed("close", instance.close)

"""The numbers that are read when somebody collects them: queue, workers, upstreams, runs in the store."""

from collections.abc import Callable, Iterable
from typing import Final, get_args

import anyio
import structlog
from opentelemetry.metrics import CallbackOptions, Observation

from portal.base.errors import RuleError
from portal.records.audit.audit import Audit
from portal.records.store.records import OPEN, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from portal.records.telemetry.instruments import ERROR, RULE, STATE, UPSTREAM
from portal.records.telemetry.telemetry import Telemetry
from sandbox_runtime.call_port import CallError
from sandbox_runtime.sandbox import Sandbox
from upstreams.fleet import Fleet
from upstreams.health import Status

log = structlog.get_logger()

OPEN_RUNS_SECONDS: Final = 15.0
"""How often the open runs are counted, which reads an index of the store."""


def observe_portal(
    telemetry: Telemetry, audit: Audit, fleet: Fleet, sandbox: Callable[[], Sandbox | None]
) -> None:
    """Count refusals; let the sandbox and the upstreams be read. `sandbox` gives None until it is open."""

    def note_refusal(error: CallError) -> None:
        rule = {RULE: error.rule} if isinstance(error, RuleError) else {}
        telemetry.refusals.add(1, {ERROR: error.code, **rule})

    def waiting(options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(box.waiting)] if (box := sandbox()) else []

    def workers(options: CallbackOptions) -> Iterable[Observation]:
        box = sandbox()
        return [Observation(n, {STATE: state}) for state, n in box.workers.items()] if box else []

    def states(options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(int(state == each.state.status), {UPSTREAM: each.name, STATE: state})
            for each in fleet
            for state in get_args(Status)
        ]

    def connections(options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(each.connections, {UPSTREAM: each.name}) for each in fleet]

    if not telemetry.is_on:
        return
    audit.on_refusal = note_refusal
    gauge, total = telemetry.meter.create_observable_gauge, telemetry.meter.create_observable_counter
    gauge("mcp_code_portal.queue.length", [waiting], "{script}", "Scripts that wait for a process.")
    gauge("mcp_code_portal.workers", [workers], "{process}", "Sandbox processes.")
    gauge("mcp_code_portal.upstream.state", [states], "1", "1 for the state of each upstream, else 0.")
    opened = "Connections that were opened."
    total("mcp_code_portal.upstream.connections", [connections], "{connection}", opened)


async def observe_runs(telemetry: Telemetry, store: RunStore) -> None:
    """Count the open runs in the store, until cancelled."""
    if not telemetry.is_on:
        return
    counts: dict[str, int] = {}

    def runs(options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(counts.get(state, 0), {STATE: state}) for state in OPEN]

    described = "Runs in the store that have not ended."
    telemetry.meter.create_observable_gauge("mcp_code_portal.runs.open", [runs], "{run}", described)
    while True:
        try:
            counts = await store.read(RunTables.open_counts)
        except StoreError as error:
            log.error("runs_not_counted", error=str(error))
        await anyio.sleep(OPEN_RUNS_SECONDS)

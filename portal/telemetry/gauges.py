"""The numbers that are read when somebody collects them: queue, workers, upstreams, runs in the store."""

from collections.abc import Callable
from typing import Final, get_args

import anyio
import structlog

from portal.audit.audit import Audit
from portal.errors import RuleError
from portal.store.records import OPEN, StoreError
from portal.store.run_tables import RunTables
from portal.store.writer import RunStore
from portal.telemetry import instruments
from portal.telemetry.telemetry import Telemetry
from sandbox_runtime.calls import CallError
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
        attributes = {instruments.ERROR: error.code} | (
            {instruments.RULE: error.rule} if isinstance(error, RuleError) else {}
        )
        telemetry.record(instruments.REFUSALS, 1, attributes)

    if not telemetry.is_on:
        return
    audit.on_refusal = note_refusal
    telemetry.observe(instruments.QUEUE, lambda: [(box.waiting, {})] if (box := sandbox()) else [])
    telemetry.observe(
        instruments.WORKERS,
        lambda: (
            [(n, {instruments.STATE: state}) for state, n in box.workers.items()]
            if (box := sandbox())
            else []
        ),
    )
    telemetry.observe(
        instruments.UPSTREAM_STATE,
        lambda: [
            (int(state == each.state.status), {instruments.UPSTREAM: each.name, instruments.STATE: state})
            for each in fleet
            for state in get_args(Status)
        ],
    )
    telemetry.observe(
        instruments.CONNECTIONS,
        lambda: [(each.connections, {instruments.UPSTREAM: each.name}) for each in fleet],
    )


async def observe_runs(telemetry: Telemetry, store: RunStore) -> None:
    """Count the open runs in the store, until cancelled."""
    if not telemetry.is_on:
        return
    counts: dict[str, int] = {}
    telemetry.observe(
        instruments.OPEN_RUNS, lambda: [(counts.get(state, 0), {instruments.STATE: state}) for state in OPEN]
    )
    while True:
        try:
            counts = await store.read(RunTables.open_counts)
        except StoreError as error:
            log.error("runs_not_counted", error=str(error))
        await anyio.sleep(OPEN_RUNS_SECONDS)

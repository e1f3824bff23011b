"""What a worker and the guest in it are told of a run, besides its script."""

from collections.abc import Mapping
from typing import TypeAlias

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.frames import RUN_HEADER, START_HEADER
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.guest_json import encode
from sandbox_runtime.record import Origin
from sandbox_runtime.timeline import seed_of_module

LibraryTable: TypeAlias = Mapping[str, Mapping[str, str]]
"""For each namespace that the script mentions, each function's name and its signature in one line; one without is not
shown to the script, but may be called, which the port refuses."""

FRAME_SLACK_BYTES = 2 << 20
"""How much longer than what it carries a frame of the worker may be."""


def worker_settings(
    limits: Limits, origin: Origin, *, longest_call: int, patience: float, is_session: bool, is_traced: bool
) -> bytes:
    """The head of a PREPARE frame. A call may have `longest_call` bytes; `patience` multiplies the CPU time."""
    sizes = (
        limits.memory_mib << 20,
        limits.stdout_bytes,
        longest_call + FRAME_SLACK_BYTES,
        limits.result_bytes,
    )
    start = (origin.seed, origin.wall_ms, origin.monotonic_ms, origin.at_ns())
    return RUN_HEADER.pack(limits.cpu_seconds * patience, *sizes, is_session) + START_HEADER.pack(
        *start, is_traced
    )


def guest_settings(limits: Limits, origin: Origin, table: LibraryTable, grants: RunGrants) -> bytes:
    """The JSON of an EXECUTE frame. A new interpreter gets a seed for `random`; that of a session goes on."""
    settings: dict[str, Json] = {
        "library": {namespace: _table_text(functions) for namespace, functions in table.items()},
        "argument_bytes": limits.argument_bytes,
        "result_bytes": limits.result_bytes,
        **grants.settings(),
    }
    if origin.is_first:
        settings["seed"] = seed_of_module(origin.seed)
    return encode(settings)


def _table_text(functions: Mapping[str, str]) -> str:
    """One line per function, "name signature", between line breaks: the guest searches it without parsing."""
    lines = (f"{name} {' '.join(signature.splitlines())}\n" for name, signature in functions.items())
    return "\n" + "".join(lines)

"""What of WASI is ours: the clocks and the randomness belong to a run, not to the machine (docs/decisions/0006)."""

from typing import Any, NoReturn, Protocol

from wasmtime import WasmtimeError

from sandbox_runtime import abi

MONOTONIC_CLOCK = "wasi:clocks/monotonic-clock@0.2.9"
WALL_CLOCK = "wasi:clocks/wall-clock@0.2.9"
RANDOM = "wasi:random/random@0.2.9"
_MAX_RANDOM_BYTES = 1 << 16
_NS_PER_MS = 1_000_000
_NS_PER_SECOND = 1_000_000_000


class Surroundings(Protocol):
    """Time and chance, as the guest meets them. Only WasmtimeError may be raised."""

    def monotonic_ns(self) -> int: ...
    def wall_ns(self) -> int: ...
    def random_bytes(self, size: int) -> bytes: ...
    def refuse_to_wait(self) -> NoReturn: ...


def interfaces(surroundings: Surroundings) -> dict[str, dict[str, abi.HostFunction]]:
    """Whole interfaces: what is linked under a name takes the place of all that the engine has under it."""
    instant = abi.Datetime()

    def monotonic_now(_: Any, results: Any) -> None:
        abi.set_u64(results[0], surroundings.monotonic_ns())

    def wait(_: Any, __: Any) -> NoReturn:
        # The engine's own timers know another time, and nothing ends them. The guest's Python waits in `exchange`.
        surroundings.refuse_to_wait()

    def wall_now(_: Any, results: Any) -> None:
        instant.set(results[0], *divmod(surroundings.wall_ns(), _NS_PER_SECOND))

    def wall_resolution(_: Any, results: Any) -> None:
        instant.set(results[0], 0, _NS_PER_MS)

    def random_bytes(arguments: Any, results: Any) -> None:
        size = arguments[0].of.u64
        if size > _MAX_RANDOM_BYTES:
            raise WasmtimeError(f"{size} random bytes at once")
        abi.set_bytes(results[0], surroundings.random_bytes(size))

    def random_u64(_: Any, results: Any) -> None:
        abi.set_u64(results[0], int.from_bytes(surroundings.random_bytes(8), "little"))

    return {
        MONOTONIC_CLOCK: {
            "now": monotonic_now,
            "resolution": _resolution,
            "subscribe-duration": wait,
            "subscribe-instant": wait,
        },
        WALL_CLOCK: {"now": wall_now, "resolution": wall_resolution},
        RANDOM: {"get-random-bytes": random_bytes, "get-random-u64": random_u64},
    }


def _resolution(_: Any, results: Any) -> None:
    abi.set_u64(results[0], _NS_PER_MS)

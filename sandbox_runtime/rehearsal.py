"""A script that does what most scripts do, run once by the fork server to learn which pages of memory that takes."""

import json

from sandbox_runtime.engine import GuestEngine
from sandbox_runtime.frames import ToPortal, ToWorker
from sandbox_runtime.run_host import RunHost, RunLimits
from sandbox_runtime.timeline import SEED_BYTES, RunStart

_SCRIPT = b"""\
rows = [await rehearsal.one(i=i) for i in range(2)]
rows += await asyncio.gather(*[rehearsal.one(i=i) for i in range(2)])
print(len(rows))
[row["content"] for row in rows]
"""
_SETTINGS = {
    "library": {"rehearsal": "\none async def rehearsal.one(...)\n"},
    "argument_bytes": 1 << 16,
    "result_bytes": 1 << 16,
    "seed": "any",
}
_LIMITS = RunLimits(10, 64 << 20, 1 << 16, 1 << 16, 1 << 16, False)
_START = RunStart(bytes(SEED_BYTES), 0, 0, 0, False)


def learn_hot_pages(engine: GuestEngine, host: RunHost) -> None:
    """Run it in an instance that is dropped afterwards; that also leaves every lazy part of the engine ready."""
    host.connect(_Answers())
    host.begin(_LIMITS, _START, None)
    instance = engine.instantiate()
    try:
        instance.prepare(_SCRIPT, b"rehearsal", most=1 << 16)
        instance.execute(json.dumps(_SETTINGS).encode(), most=1 << 16)
        engine.hot_pages.learn()
    finally:
        instance.close()
        host.end()


class _Answers:
    """The channel of a portal that answers every call at once."""

    def __init__(self) -> None:
        self._calls: list[bytes] = []

    @property
    def has_frame(self) -> bool:
        return bool(self._calls)

    def send(self, kind: int, *parts: bytes, before: bytes = b"") -> None:
        if kind == ToPortal.CALLS:
            self._calls += b"".join(parts).split(b"\n")

    def receive(self) -> tuple[int, bytes]:
        identities = [line.partition(b" ")[0] for line in self._calls]
        self._calls.clear()
        answers = [b'[%b,1,{"content": [1, 2.5, "text", null, true]}]' % identity for identity in identities]
        return ToWorker.ANSWERS, b",".join(answers)

    def wait(self, timeout_ms: int) -> bool:
        return self.has_frame or timeout_ms < 0

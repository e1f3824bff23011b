"""The random bytes of a run: a stream that its seed decides."""

import hashlib

SEED_BYTES = 32


class Randomness:
    """SHAKE-256 of the seed and a counter: who does not know the seed can guess none of it."""

    def __init__(self, seed: bytes) -> None:
        self._state = hashlib.shake_256(seed)
        self._draws = 0

    def draw(self, size: int) -> bytes:
        self._draws += 1
        stream = self._state.copy()
        stream.update(self._draws.to_bytes(8, "little"))
        return stream.digest(size)


def seed_of_module(seed: bytes) -> str:
    """What the module `random` is seeded with; it tells nothing about the stream."""
    return hashlib.sha256(b"the module random\n" + seed).hexdigest()

"""What answers that are not all there yet may hold in memory: one may have 64 MiB, and there may be many of them."""

from typing import Final

from upstreams.errors import UpstreamLostError, UpstreamRoomError
from upstreams.steps import STEP_BYTES

MIB: Final = 1024 * 1024
UPSTREAM_BYTES: Final = 256 * MIB
PORTAL_BYTES: Final = 1024 * MIB


class Room:
    """So many bytes for all answers that are being read of one upstream, within the room of the portal.

    Nothing waits for room: those who hold it might wait for each other. An answer of up to `STEP_BYTES` takes none, so
    that small ones are read also where large ones fill it.
    """

    def __init__(self, most_bytes: int, around: "Room | None" = None) -> None:
        self._left_bytes = self._most_bytes = most_bytes
        self._around = around

    @property
    def held_bytes(self) -> int:
        return self._most_bytes - self._left_bytes

    @property
    def left_bytes(self) -> int:
        return min(self._left_bytes, self._around.left_bytes) if self._around else self._left_bytes

    def take(self, count: int) -> bool:
        """Whether there was so much left, which is the caller's now; a negative count gives back."""
        if count > self._left_bytes or (self._around is not None and not self._around.take(count)):
            return False
        self._left_bytes -= count
        return True


class Held:
    """What one answer that is being read holds of a room; `is_of_call` says whether nothing else is read with it."""

    def __init__(self, room: Room, *, is_of_call: bool = False) -> None:
        self._room = room
        self.is_of_call = is_of_call
        self._bytes = 0
        self._is_wanted = True

    @property
    def is_awaited(self) -> bool:
        """Whether it is one call's, and that was not given up."""
        return self.is_of_call and self._is_wanted

    @property
    def is_large(self) -> bool:
        return self._bytes > 0

    def fits(self, count: int) -> bool:
        """Whether it may be of so many bytes; if so, it holds them from now on, and no others."""
        wanted = max(0, count - STEP_BYTES)
        if not self._room.take(wanted - self._bytes):
            return False
        self._bytes = wanted
        return True

    def hold(self, count: int) -> None:
        """The same, or it is read no further, and its room is for others at once.

        Raises:
            UpstreamRoomError: They do not fit.
            UpstreamLostError: It is large, and nobody waits for it any more.
        """
        if count > STEP_BYTES and not self._is_wanted:
            self.release()
            raise UpstreamLostError("nobody waits for the answer any more")
        if not self.fits(count):
            error = self.refusal()
            self.release()
            raise error

    def refusal(self) -> UpstreamRoomError:
        """What its call hears, while it still holds what it held."""
        return UpstreamRoomError(
            f"of this answer {(self._bytes + self._room.left_bytes) / MIB:.1f} MiB fit beside others that are not all "
            f"there yet, and it is longer: together they may be of {UPSTREAM_BYTES // MIB} MiB, and of "
            f"{PORTAL_BYTES // MIB} MiB with those of other upstreams"
        )

    def abandon(self) -> None:
        """Nobody waits for it any more, so it may not become large."""
        self._is_wanted = False

    def release(self) -> None:
        """Nothing of it is held any more."""
        self.fits(0)

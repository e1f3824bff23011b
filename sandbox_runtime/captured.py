"""What a run lets out while it goes on: printed text and content blocks, counted again on this side."""

from manifests.json_value import Json
from manifests.models import Limits
from sandbox_runtime.frames import FrameError
from sandbox_runtime.guest_json import GuestJsonError, parse

_MAX_BLOCKS = 1000


class Captured:
    """Kept to the end, however the run ends."""

    def __init__(self, limits: Limits) -> None:
        self.dropped_bytes = 0
        self.notices: list[str] = []
        self._limits = limits
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._blocks: list[dict[str, Json]] = []
        self._blocks_bytes = 0

    @property
    def stdout(self) -> str:
        return b"".join(self._output).decode("utf-8", "replace")

    @property
    def blocks(self) -> tuple[dict[str, Json], ...]:
        return tuple(self._blocks)

    def take_output(self, text: bytes) -> None:
        """Keep printed text.

        Raises:
            FrameError: It is more than an honest worker lets through.
        """
        self._output_bytes += len(text)
        if self._output_bytes > self._limits.stdout_bytes:
            raise FrameError("more output than is allowed")
        self._output.append(text)

    def take_block(self, payload: bytes) -> None:
        """Keep a content block; one that is none is left out, with a notice.

        Raises:
            FrameError: They are more bytes than an honest worker lets through.
        """
        self._blocks_bytes += len(payload)
        if self._blocks_bytes > self._limits.result_bytes:
            raise FrameError("more content than is allowed")
        try:
            block = parse(payload)
        except GuestJsonError as problem:
            self._leave_out(str(problem))
            return
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            self._leave_out("it is no object with a type")
        elif len(self._blocks) >= _MAX_BLOCKS:
            self._leave_out(f"there are {_MAX_BLOCKS:,} already")
        else:
            self._blocks.append(block)

    def _leave_out(self, why: str) -> None:
        notice = f"a content block was left out of the answer: {why}"
        if notice not in self.notices:
            self.notices.append(notice)

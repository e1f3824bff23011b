"""What a run lets out while it goes on: printed text and content blocks, counted again on this side."""

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.frames import MAX_BLOCKS, FrameError
from sandbox_runtime.guest_json import GuestJsonError, parse, values_in

_LINES_ONE_BY_ONE = 10_000
"""After so many the guest sends what it prints in larger pieces."""


class Captured:
    """Kept to the end, however the run ends."""

    def __init__(self, limits: Limits) -> None:
        self.dropped_bytes = 0
        self.notices: list[str] = []
        self._limits = limits
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._blocks: list[bytes] = []
        self._blocks_bytes = 0

    @property
    def stdout(self) -> str:
        return b"".join(self._output).decode("utf-8", "replace")

    @property
    def bytes_to_read(self) -> int:
        return self._blocks_bytes

    def take_output(self, text: bytes) -> None:
        """Keep printed text.

        Raises:
            FrameError: It is more than an honest worker lets through.
        """
        self._output_bytes += len(text)
        if self._output_bytes > self._limits.stdout_bytes:
            raise FrameError("more output than is allowed")
        self._output.append(text)

    def end_early(self) -> None:
        """Nothing more comes, though the guest has not said that it is done."""
        if len(self._output) >= _LINES_ONE_BY_ONE:
            self.notices.append(
                "what the script printed last may be missing: it ended abruptly, and after "
                f"{_LINES_ONE_BY_ONE:,} lines only what is printed with flush=True is kept at once"
            )

    def take_block(self, payload: bytes) -> None:
        """Keep what a script emitted, to be read when the run is over.

        Raises:
            FrameError: They are more than an honest worker lets through.
        """
        self._blocks_bytes += len(payload)
        if self._blocks_bytes > self._limits.result_bytes or len(self._blocks) > MAX_BLOCKS:
            raise FrameError("more content than is allowed")
        self._blocks.append(payload)

    def read_blocks(self, most_values: int) -> tuple[tuple[dict[str, Json], ...], int]:
        """The content blocks, and how many values they hold; one that is none is left out, with a notice."""
        if len(self._blocks) > MAX_BLOCKS:
            self._leave_out(f"there are {MAX_BLOCKS:,} already")
        blocks: list[dict[str, Json]] = []
        values = 0
        for payload in self._blocks[:MAX_BLOCKS]:
            count = values_in(payload, most_values - values)
            if values + count > most_values:
                self._leave_out("it holds too many values for the limit result_bytes")
                continue
            values += count
            try:
                block = parse(payload)
            except GuestJsonError as problem:
                self._leave_out(str(problem))
                continue
            if isinstance(block, dict) and isinstance(block.get("type"), str):
                blocks.append(block)
            else:
                self._leave_out("it is no object with a type")
        return tuple(blocks), values

    def _leave_out(self, why: str) -> None:
        notice = f"a content block was left out of the answer: {why}"
        if notice not in self.notices:
            self.notices.append(notice)

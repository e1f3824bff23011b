"""Keeps secrets out of what people and models read about an upstream."""

from upstreams.redaction import Redaction
from upstreams.wire_text import one_line


class Scrubber(Redaction):
    """Masks the secrets of all upstreams."""

    def excerpt(self, text: bytes, limit: int = 120) -> str:
        """The beginning of what a stranger sent: in one line, printable."""
        # A character takes up to four bytes.
        head = text.lstrip()[: 4 * (limit + self.longest)]
        return one_line(self.start(head.decode("utf-8", "replace").strip(), limit))

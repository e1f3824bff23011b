"""The secrets of an upstream, taken out of the JSON that it sends to scripts."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from upstreams.redaction import Redaction
from upstreams.steps import Steps

Mask: TypeAlias = Callable[[bytes], Steps[bytes]]
"""JSON text in, the same without secrets out."""


class CredentialMask:
    def __init__(self, credentials: Iterable[str]) -> None:
        self._redact = Redaction(credentials)

    def __call__(self, text: bytes) -> Steps[bytes]:
        yield
        if text.lstrip().startswith((b"{", b"[")):
            return self._redact.in_json(text)
        return b"".join(map(self._in_event, text.splitlines(keepends=True)))

    def _in_event(self, line: bytes) -> bytes:
        """A line of an event stream, the data of which is JSON."""
        field, colon, value = line.partition(b":")
        end = value[len(value.rstrip()) :]
        return field + colon + self._redact.in_json(value.rstrip()) + end if colon else line

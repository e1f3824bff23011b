"""What the bodies of the POSTs are that the SDK's transports send."""

import re
from typing import Final

# As the SDK's models serialise: the envelope's members first, so that nothing inside `params` can pass for one.
_REQUEST: Final = re.compile(
    rb'\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(?:(\d+)|"[^"]*")\s*,\s*"method"\s*:'
)
_CANCELLED: Final = re.compile(
    rb'\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"method"\s*:\s*"notifications/cancelled"\s*,'
    rb'\s*"params"\s*:\s*\{\s*"requestId"\s*:\s*(\d+)'
)
_NOTIFICATION: Final = re.compile(rb'\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"method"\s*:\s*"([^"]*)"')


def awaits_answer(content: bytes) -> bool:
    """Whether a POST's body is a JSON-RPC request rather than a notification or a reply."""
    return _REQUEST.match(content) is not None


def asked_id(content: bytes) -> int | None:
    """The number of the request in a POST's body; None if its id is no number."""
    match = _REQUEST.match(content)
    return int(match[1]) if match and match[1] else None


def is_notification(content: bytes) -> bool:
    """Whether a POST's body is one, rather than a request or a reply."""
    return _NOTIFICATION.match(content) is not None


def is_initialized(content: bytes) -> bool:
    """Whether it is the notification that ends the handshake."""
    match = _NOTIFICATION.match(content)
    return match is not None and match[1] == b"notifications/initialized"


def given_up_id(content: bytes) -> int | None:
    """The id of the request that a POST's body cancels; None if it cancels none."""
    match = _CANCELLED.match(content)
    return int(match[1]) if match else None

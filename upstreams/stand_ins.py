"""Long messages on their way past the SDK's HTTP transport, which reads each message four times over, and in one go.

It is given a short message in the place of each, and the long one takes that place again behind it.
"""

import asyncio
import secrets
from typing import Final

from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCResponse

_TOKEN: Final = "token"


class StandIns:
    """Those of one connection."""

    def __init__(self) -> None:
        self._messages: dict[str, JSONRPCMessage] = {}

    def stand_in(self, message: JSONRPCMessage) -> bytes:
        """What this task gives to the SDK, and no upstream can forge. It stands for nothing when the task has ended."""
        token = secrets.token_hex(16)
        self._messages[token] = message
        task = asyncio.current_task()
        assert task
        task.add_done_callback(lambda _: self._messages.pop(token, None))
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            return _text(JSONRPCResponse(jsonrpc="2.0", id=message.id or 0, result={_TOKEN: token}))
        return _text(JSONRPCNotification(jsonrpc="2.0", method=token))

    def taken(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """What a message stands for, which is itself for all others."""
        if not self._messages:
            return message
        if isinstance(message, JSONRPCNotification):
            return self._messages.pop(message.method, message)
        token = message.result.get(_TOKEN) if isinstance(message, JSONRPCResponse) else None
        meant = self._messages.pop(token, None) if isinstance(token, str) else None
        if not isinstance(meant, JSONRPCResponse | JSONRPCError):
            return message
        # The SDK knows what request was answered.
        return meant.model_copy(update={"id": message.id})


def _text(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()

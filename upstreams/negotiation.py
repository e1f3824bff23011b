"""Settles with which revision of the protocol to speak."""

from mcp.client import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from upstreams.errors import UpstreamAnswerError, UpstreamUnavailableError, UpstreamUnreadError
from upstreams.wire import Wire, is_closed


class HandshakeFirstError(UpstreamUnavailableError):
    """The server ended when asked for its revision; servers like that want `initialize` before all else."""


async def negotiate(session: ClientSession, wire: Wire, handshake_first: bool) -> None:
    """Settle the era: the 2026-07-28 probe, then the older handshake; what the SDK's `auto` mode does, which
    can only be had together with a dispatcher of its own."""
    if not handshake_first:
        try:
            await session.discover()
            return
        except MCPError as error:
            failure = wire.failures.claim(error)
            is_unread = isinstance(failure, UpstreamUnreadError)
            if isinstance(failure, UpstreamUnavailableError) and not is_unread:
                raise failure from error
            if is_unread or is_closed(error.error):
                raise HandshakeFirstError(await wire.explain_end()) from error
        except (ValidationError, RuntimeError):
            pass  # no sensible answer to the probe is what an older server gives
    try:
        await session.initialize()
    except MCPError as error:
        # A slow starter may have read the probe, given up by then, first: that has settled the era.
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()
    except (ValidationError, RuntimeError) as error:
        problem = str(error).splitlines()[0]
        raise UpstreamAnswerError(f"does not answer initialize as MCP says: {problem}") from error

"""How a connection to an upstream is made."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
from mcp.client import ClientSession
from mcp.shared.exceptions import MCPError

from upstreams.changes import Changes
from upstreams.connection import Connection
from upstreams.diagnostics import Diagnostics
from upstreams.envelope import Envelope, client_info
from upstreams.errors import (
    UpstreamError,
    UpstreamLostError,
    UpstreamRefusedError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
    UpstreamUnreadError,
)
from upstreams.given_up import GivenUp
from upstreams.negotiation import negotiate
from upstreams.questions import QuestionDesk
from upstreams.wire import Wire, is_closed, with_last_words

WireOpener = Callable[[Diagnostics], AbstractAsyncContextManager[Wire]]
"""Reaches one upstream over its transport; raises UpstreamError when it cannot."""


@asynccontextmanager
async def open_connection(
    open_wire: WireOpener,
    diagnostics: Diagnostics,
    questions: QuestionDesk,
    *,
    seconds: float,
    handshake_first: bool,
) -> AsyncIterator[Connection]:
    """Connect, negotiate the era and list the tools, all within `seconds`.

    Raises:
        UpstreamError: It cannot be reached, or does not speak MCP; the message says which.
    """
    changes = Changes(diagnostics, questions.given_up)
    info = client_info()
    async with (
        _heard_by(changes, questions.given_up, open_wire(diagnostics)) as wire,
        ClientSession(
            dispatcher=wire,
            read_timeout_seconds=seconds + 1,
            message_handler=changes,
            client_info=info,
            **questions.callbacks(),
        ) as session,
    ):
        try:
            with anyio.fail_after(seconds):
                await negotiate(session, wire, handshake_first)
                connection = Connection(
                    wire, session, Envelope(session, info), diagnostics, changes, questions
                )
                await connection.list_tools()
        except TimeoutError:
            reason = f"was not ready within {seconds:g} s"
            raise UpstreamUnavailableError(with_last_words(reason, wire.last_words())) from None
        except MCPError as error:
            raise await _start_failure(error, wire) from error
        except (UpstreamLostError, UpstreamTimeoutError, UpstreamUnreadError) as error:
            raise UpstreamUnavailableError(await wire.explain_end()) from error
        yield connection


@asynccontextmanager
async def _heard_by(
    changes: Changes, given_up: GivenUp, opening: AbstractAsyncContextManager[Wire]
) -> AsyncIterator[Wire]:
    async with opening as wire:
        wire.on_excess, wire.on_notification = changes.note_excess, changes.heed
        wire.on_answer = given_up.answered
        yield wire


async def _start_failure(error: MCPError, wire: Wire) -> UpstreamError:
    failure = wire.failures.claim(error)
    if failure and not isinstance(failure, UpstreamUnreadError):
        return failure
    if failure or is_closed(error.error):
        return UpstreamUnavailableError(await wire.explain_end())
    return UpstreamRefusedError(f"refused to start: {error}", rpc_code=error.code)

"""How the client of one request can be asked something: by a request to it, or with an answer that asks."""

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import CallToolRequestParams, CreateMessageResult, ElicitRequest, ElicitResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from manifests.json_value import Json
from portal.passthrough.asking import Ask, Question


def comes_in_rounds(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> bool:
    """Whether its client can be asked, and only with an answer: since 2026-07-28 servers send no requests.

    One that goes on with another does, whatever it declares: taken for a new one it would do everything twice.
    """
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    can = context.session.client_capabilities
    can_be_asked = can is not None and (can.elicitation is not None or can.sampling is not None)
    return can_be_asked or params.request_state is not None


def live_questions(context: ServerRequestContext[Any, Any]) -> Ask:
    """Asks by a request, on the stream of the client's own."""
    session = context.session

    async def ask(question: Question) -> dict[str, Json]:
        if not session.can_send_request:
            raise NoBackChannelError(question.method)
        about = ServerMessageMetadata(related_request_id=context.request_id)
        if isinstance(question, ElicitRequest):
            answer: ElicitResult | CreateMessageResult = await session.send_request(
                question, ElicitResult, metadata=about
            )
        else:
            answer = await session.send_request(question, CreateMessageResult, metadata=about)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    return ask

"""A refusal is a lost session by its status, its id and its words. A tool's own error about sessions is not."""

import pytest
from mcp_types import JSONRPCRequest

from upstreams.errors import UpstreamError, UpstreamForgottenError, UpstreamSessionError
from upstreams.transports.http_errors import lost_session

AGAIN, RETIRED = UpstreamForgottenError, UpstreamSessionError
ID = "5f2b9c0e"
CALL, ABOUT_SESSIONS = (
    JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"name": "act", "arguments": arguments})
    for arguments in ({}, {"sessionId": "mine"})
)

WORDS = [
    "Session not found", "Session not found: 5f2b", "Not Found: Session has been terminated", "Unknown session",
    "Bad Request: No valid session ID provided", "Bad Request: Server not initialized",
    "No transport found for sessionId", "Could not find session", "invalid or missing session id",
    "Invalid Mcp-Session-Id", "the session is closed", "Session 'a-b' does not exist", 'session "a-b" expired',
    "Your session timed out, please initialize again", "Mcp-Session-Id header is required", "no such session",
    "the session is stale", "Session ID a-b is not valid", "This session is no longer active", f"会话 {ID} 已失效",
]  # fmt: skip
OTHER_WORDS = [
    "the checkout session expired after payment", "no browser session is open", "your chat session not found",
    "the database is locked", "obsession not found", "cannot start a session while another one runs",
]  # fmt: skip


def test_session_is_lost_in_any_of_these_words_and_in_no_others() -> None:
    for words in WORDS:
        assert lost_session(503, words, ID) is RETIRED, words
    for words in OTHER_WORDS:
        assert lost_session(503, words, ID) is None, words


@pytest.mark.parametrize("words", [WORDS[0], OTHER_WORDS[0], ""])
def test_404_that_is_no_answer_to_the_request_is_certain(words: str) -> None:
    assert lost_session(404, words, ID, -32600) is AGAIN
    assert lost_session(404, words, ID) is AGAIN
    assert lost_session(404, words, "") is None  # there was no session


@pytest.mark.parametrize(("status", "code", "words", "kind"), [
    (400, None, "No valid session ID provided", AGAIN), (404, -32001, "Session not found", AGAIN),
    (404, -32603, "Session not found: 5f2b", RETIRED), (404, -32000, "not here", RETIRED),
    (404, -32601, "Method not found", None), (404, -32602, "Unknown tool", None), (410, None, "", RETIRED),
    (401, None, "Session expired", None), (429, None, "Session expired", None),
    (200, -32001, "Session not found", RETIRED), (400, -32602, "Session not found", RETIRED),
    (409, None, "Session not found", RETIRED), (200, -32603, "the database is locked", None),
    (400, None, "the database is locked", None),
])  # fmt: skip
def test_rest_of_the_table(status: int, code: int | None, words: str, kind: type | None) -> None:
    assert lost_session(status, words, ID, code, None if code is None else CALL) is kind


def test_a_tool_that_is_about_sessions_may_have_lost_its_own() -> None:
    def told(words: str) -> type[UpstreamError] | None:
        return lost_session(200, words, ID, -32000, ABOUT_SESSIONS)

    assert told("Session not found") is None
    assert told(f"Session {ID} not found") is RETIRED
    # Not an answer to the call: the server has not read its arguments.
    assert lost_session(503, "Session not found", ID) is RETIRED

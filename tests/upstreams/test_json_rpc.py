"""Lines of a stdio server become messages, and credentials are in none of them."""

import pytest
from mcp_types import JSONRPCResponse

from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamAnswerError
from upstreams.json_rpc import MessageReader
from upstreams.masking import CredentialMask
from upstreams.scrubber import Scrubber
from upstreams.wire import Failures

SECRET = b"a-long-credential-of-it"
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{"text":"%b"}}'


@pytest.mark.parametrize("text", [SECRET, b"a harmless text"])
def test_message_at_the_end_of_a_line_is_read_without_credentials(text: bytes) -> None:
    reader = MessageReader(Failures(), Diagnostics(Scrubber(())), CredentialMask([SECRET.decode()]))
    line = b"half an answer " + ANSWER % text
    for messages in (reader.read(line), reader.end_of_too_long(line, UpstreamAnswerError("too long"))):
        answer = [*messages][-1].message
        assert isinstance(answer, JSONRPCResponse)
        assert answer.result == {"text": "[hidden]" if text == SECRET else text.decode()}

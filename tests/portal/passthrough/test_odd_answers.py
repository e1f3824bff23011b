"""What clients answer that no official client sends: it costs at most the call that it is an answer for."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from manifests.json_value import Json
from tests.portal.passthrough.peers import chatty_upstreams, client_of, url_of
from tests.portal.peers import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio

REVISION = "2026-07-28"
HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": REVISION,
    "mcp-method": "tools/call",
    "mcp-name": "execute_code",
}
META: Json = {
    PROTOCOL_VERSION_META_KEY: REVISION,
    CLIENT_INFO_META_KEY: {"name": "odd", "version": "1"},
    CLIENT_CAPABILITIES_META_KEY: {"elicitation": {}, "sampling": {}},
}
HALF = "\ud83d"
FORM: Json = {"action": "accept", "content": {"who": "Ada"}}
SAMPLE: Json = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}}


class Odd:
    """A client of the newer revision that writes its requests itself."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def run(self, code: str, answer: Json = None) -> dict[str, Json]:
        """What execute_code answers; what it asks before is answered so."""
        result = await self._call(code, {})
        while result.get("resultType") == "input_required":
            answers = dict.fromkeys(result["inputRequests"], answer)
            more = {"inputResponses": answers, "requestState": result["requestState"]}
            result = await self._call(code, more)
        structured = result["structuredContent"]
        assert isinstance(structured, dict)
        return structured

    async def _call(self, code: str, more: dict[str, Json]) -> dict[str, Json]:
        params = {"name": "execute_code", "arguments": {"code": code}, "_meta": META, **more}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        told = (await self._http.post(self._url, headers=HEADERS, content=json.dumps(request))).text
        if not told.startswith("{"):
            told = [line[5:] for line in told.splitlines() if line.startswith("data:")][-1]
        result = json.loads(told)["result"]
        assert isinstance(result, dict)
        return result


@pytest.fixture
async def odd(tmp_path: Path) -> AsyncIterator[Odd]:
    async with chatty_upstreams() as upstreams:
        for entry in upstreams.values():
            entry["sampling"] = {}
        async with (
            client_of(tmp_path, upstreams, "http", "auto") as ear,
            httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http,
        ):
            yield Odd(http, url_of(ear.client))


@pytest.mark.parametrize("upstream", ["http_modern", "stdio_legacy"])
async def test_half_a_surrogate_is_answered_with_and_ends_no_connection(odd: Odd, upstream: str) -> None:
    answer = await odd.run(f"await {upstream}.ask()", {**FORM, "content": {"who": HALF}})
    assert answer["result"] == "accept {'who': '?'}"
    assert (await odd.run(f"await {upstream}.ask()", {**FORM, "content": {HALF: "x"}}))["status"] == "ok"
    sample = {**SAMPLE, "content": {"type": "text", "text": f"half {HALF}"}}
    assert (await odd.run(f"await {upstream}.sample()", sample))["result"] == "half ?"


@pytest.mark.parametrize("upstream", ["http_modern", "stdio_legacy"])
async def test_answer_to_something_else_is_none(odd: Odd, upstream: str) -> None:
    wrong = [("ask", {"roots": []}), ("ask", SAMPLE), ("sample", {"roots": []}), ("sample", FORM)]
    for tool, answer in wrong:
        error = (await odd.run(f"await {upstream}.{tool}()", answer))["error"]
        assert (tool, error["code"]) == (tool, "question_unanswered")
    assert (await odd.run(f"await {upstream}.ask()", FORM))["result"] == "accept {'who': 'Ada'}"
    assert (await odd.run(f"await {upstream}.sample()", SAMPLE))["result"] == "hello"

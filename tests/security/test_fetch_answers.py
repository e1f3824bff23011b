"""A host that a script may fetch from can end that fetch, and nothing else: no memory, no time, no other run.

However many fetches a script makes, the limits hold. Each hostile answer has a harmless twin in the same run.
"""

import asyncio
import gzip

import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.fetching import (
    Answer,
    FetchRunner,
    Request,
    Server,
    granting,
    hanging,
    redirect,
    response,
)
from tests.sandbox_runtime.running import Runner
from tests.security.hostile import MOST_SECONDS, RAW_HOST, watched

pytestmark = pytest.mark.anyio

RESPONSE_BYTES = 100_000
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def fetch(run: Runner, server: Server) -> FetchRunner:
    return granting(run, f"127.0.0.1:{server.port}", response_bytes=RESPONSE_BYTES)


def dripping(*parts: bytes, forever: bytes = b"") -> Answer:
    """Sends some bytes, then for ever the same again, as long as the client takes them."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
        await writer.drain()
        while forever:
            writer.write(forever)
            await writer.drain()
            await asyncio.sleep(0)
        await request.reader.read()

    return answer


BOMB = gzip.compress(bytes(50 << 20))
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SWITCHING = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
LENGTH = HEAD + b"Content-Length: "
HOSTILE: dict[str, tuple[bytes | Answer, str]] = {
    "as much as is allowed": (response(bytes(RESPONSE_BYTES)), ""),
    "more than is allowed": (response(bytes(RESPONSE_BYTES + 1)), "response_limit"),
    "says more than is allowed": (
        dripping(LENGTH + b"99999999999\r\n\r\n", forever=b"x" * 1000),
        "response_limit",
    ),
    "endless": (dripping(HEAD + b"\r\n", forever=b"x" * 1000), "response_limit"),
    "endless chunks": (dripping(CHUNKED, forever=b"1\r\nx\r\n" * 1000), "fetch_failed"),
    "packed bomb": (response(BOMB, Content_Encoding="gzip"), ""),
    "huge header": (HEAD + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n", "fetch_failed"),
    "endless headers": (dripping(HEAD, forever=b"X: x\r\n" * 100), "fetch_failed"),
    "endless hints": (dripping(forever=b"HTTP/1.1 103 Early Hints\r\n\r\n"), "fetch_timeout"),
    "nothing, slowly": (dripping(), "fetch_timeout"),
    "half a body": (LENGTH + b"10\r\n\r\nhalf", "fetch_failed"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.9\r\n", "fetch_failed"),
    "another protocol": (SWITCHING, "fetch_failed"),
    "negative length": (LENGTH + b"-1\r\n\r\n", "fetch_failed"),
    "two lengths": (LENGTH + b"1\r\nContent-Length: 2\r\n\r\nxx", "fetch_failed"),
    "redirect to a name that cannot be read": (redirect("http://axn--/"), "fetch_failed"),
    "not ASCII": (response("ä".encode("latin-1"), "200 \xe4", X="\xff\xfe"), ""),
}


async def test_name_that_cannot_be_read_is_no_url(fetch: FetchRunner, server: Server) -> None:
    """Half of a name in Punycode has no other form, and whoever asks for that gets an error."""
    script = (
        f'told = []\nfor url in ("http://axn--/", "http://axn--:{server.port}/", "{server.base}/twin"):\n    try:\n'
        "        told.append((await portal.fetch(url)).text)\n    except ToolError as error:\n"
        "        told.append(error.code)\ntold"
    )
    assert await fetch.value(script) == ["invalid_arguments", "invalid_arguments", "/twin"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_answer_ends_its_fetch_and_nothing_else(fetch: FetchRunner, server: Server, name: str) -> None:
    answer, code = HOSTILE[name]
    server.answers["/hostile"] = answer
    seconds = 0.3 if code == "fetch_timeout" else 20
    script = (
        f'try:\n    r = await portal.fetch("{server.base}/hostile", timeout={seconds})\n    code = ""\n'
        f'except ToolError as error:\n    code = error.code\nprint("reached")\n'
        f'[code, (await portal.fetch("{server.base}/twin")).text]'
    )
    async with watched() as delay:
        result = await fetch(script)
    assert (result.error, result.stdout) == (None, "reached\n")
    assert result.value == [code, "/twin"]
    assert delay.seconds < MOST_SECONDS
    assert fetch.states[0] != "refused"


async def test_slow_answers_hold_up_no_other_run(run: Runner, fetch: FetchRunner, server: Server) -> None:
    server.answers["/slow"] = dripping()
    slow = f'await asyncio.gather(*[portal.fetch("{server.base}/slow") for _ in range(50)], return_exceptions=True)\n1'
    waiting = asyncio.create_task(fetch(slow))
    other = granting(run, f"127.0.0.1:{server.port}")
    assert await other.value(f'(await portal.fetch("{server.base}/twin")).text') == "/twin"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


REQUESTS = 5
COUNT = """
async def code(url, **more):
    try:
        return (await portal.fetch(url, **more)).status
    except ToolError as error:
        return error.code
from collections import Counter
"""
FLOODS = {
    "all at once": "told = await asyncio.gather(*[code(BASE + '/a') for _ in range(50)])",
    "by redirects": "told = await asyncio.gather(*[code(BASE + '/round') for _ in range(50)])",
    "given up at once": "told = await asyncio.gather(*[code(BASE + '/hangs', timeout=0.01) for _ in range(50)])",
    "cancelled at once": "tasks = [asyncio.create_task(code(BASE + '/a')) for _ in range(50)]\nawait asyncio.sleep(0)\n"
    "for t in tasks: t.cancel()\ntold = await asyncio.gather(*tasks, return_exceptions=True)",
    "after refused ones": "told = [await code('http://127.0.0.1:1/') for _ in range(50)]\n"
    "told += [await code(BASE + '/a') for _ in range(50)]",
    "raw": RAW_HOST + 'lines = [f\'{i} portal.fetch {{"url": "{BASE}/a"}}\' for i in range(900, 950)]\n'
    "told = host.exchange('\\n'.join(lines), 5000)",
}


@pytest.fixture
def server(server: Server) -> Server:
    server.answers |= {"/hangs": hanging, "/round": redirect("/round")}
    return server


@pytest.mark.parametrize("name", FLOODS)
async def test_no_more_requests_arrive_than_a_run_may_send(run: Runner, server: Server, name: str) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}", requests=REQUESTS)
    script = f'BASE = "{server.base}"\n{COUNT}{FLOODS[name]}\nprint("reached")\nlen(told)'
    async with watched() as delay:
        result = await fetch(script)
    assert (result.error, result.stdout) == (None, "reached\n")
    assert len(server.requests) <= REQUESTS
    assert delay.seconds < MOST_SECONDS
    assert await fetch.value(f'(await portal.fetch("{server.base}/twin")).text') == "/twin"


async def test_fetches_count_as_calls(run: Runner, server: Server) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}", requests=1000)
    script = f'for _ in range(50): await portal.fetch("{server.base}/a")'
    for _ in range(3):
        server.requests.clear()
        result = await fetch(script, limits=Limits(tool_calls=7))
        assert (result.error.code, len(server.requests)) == ("tool_calls_limit", 7)


HEADS = {
    "many headers": b"".join(b"X-%d: x\r\n" % i for i in range(5000)),
    "one long header": b"X: " + b"x" * 90_000 + b"\r\n",
    "headers of all bytes": b"X: " + bytes(range(0x80, 0x100)) + b"\r\n",
}


@pytest.mark.parametrize("name", HEADS)
async def test_heads_are_read_or_refused_in_no_time(run: Runner, server: Server, name: str) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}")
    server.answers["/"] = b"HTTP/1.1 200 OK\r\n" + HEADS[name] + b"Content-Length: 2\r\n\r\nok"
    script = f'{COUNT}first = await code("{server.base}/")\nprint("reached")\n[first, await code("{server.base}/twin")]'
    async with watched() as delay:
        result = await fetch(script)
    assert (result.error, result.stdout) == (None, "reached\n")
    assert result.value[0] in (200, "fetch_failed")
    assert result.value[1] == 200
    assert delay.seconds < MOST_SECONDS


async def test_secrets_of_one_request_are_not_in_another(run: Runner, server: Server) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}")
    server.answers["/set"] = response(b"", Set_Cookie="session=secret")
    script = (
        f'await portal.fetch("{server.base}/set", headers={{"Authorization": "secret", "Cookie": "secret"}})\n'
        f'(await portal.fetch("{server.base}/get")).status'
    )
    assert await fetch.value(script) == 200
    assert "secret" in server.requests[0].headers.values()
    assert "secret" not in server.requests[1].headers.values()

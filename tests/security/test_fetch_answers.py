"""A host that a script may fetch from can end that fetch, and nothing else: no memory, no time, no other run.

Each hostile answer has a harmless twin that is read in the same run.
"""

import asyncio
import zlib

import pytest

from tests.sandbox_runtime.fetching import Answer, FetchRunner, Request, Server, granting, response
from tests.sandbox_runtime.running import Runner
from tests.security.hostile import MOST_SECONDS, watched

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


def packed_endlessly(level: int) -> bytes:
    packer = zlib.compressobj(level, wbits=zlib.MAX_WBITS | 16)
    return b"".join([packer.compress(bytes(1 << 20)) for _ in range(50)]) + packer.flush()


BOMB = packed_endlessly(9)
HOSTILE: dict[str, tuple[bytes | Answer, str]] = {
    "more than is allowed": (response(bytes(RESPONSE_BYTES + 1)), "response_limit"),
    "says more than is allowed": (
        dripping(HEAD + b"Content-Length: 99999999999\r\n\r\n", forever=b"x" * 1000),
        "response_limit",
    ),
    "endless": (dripping(HEAD + b"\r\n", forever=b"x" * 1000), "response_limit"),
    "endless chunks": (
        dripping(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", forever=b"1\r\nx\r\n" * 1000),
        "fetch_failed",
    ),
    "packed bomb": (response(BOMB, Content_Encoding="gzip"), ""),
    "huge header": (HEAD + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n", "fetch_failed"),
    "endless headers": (dripping(HEAD, forever=b"X: x\r\n" * 100), "fetch_failed"),
    "endless hints": (dripping(forever=b"HTTP/1.1 103 Early Hints\r\n\r\n"), "fetch_timeout"),
    "nothing, slowly": (dripping(), "fetch_timeout"),
    "half a body": (HEAD + b"Content-Length: 10\r\n\r\nhalf", "fetch_failed"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.9\r\n", "fetch_failed"),
    "another protocol": (
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "fetch_failed",
    ),
    "negative length": (HEAD + b"Content-Length: -1\r\n\r\n", "fetch_failed"),
    "two lengths": (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "fetch_failed"),
    "redirect to a name that cannot be read": (
        response(b"", "302 Found", Location="http://axn--/"),
        "fetch_failed",
    ),
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


async def test_many_slow_answers_keep_no_other_run_waiting(
    run: Runner, fetch: FetchRunner, server: Server
) -> None:
    server.answers["/slow"] = dripping()
    slow = f'await asyncio.gather(*[portal.fetch("{server.base}/slow") for _ in range(50)], return_exceptions=True)\n1'
    waiting = asyncio.create_task(fetch(slow))
    other = granting(run, f"127.0.0.1:{server.port}")
    assert await other.value(f'(await portal.fetch("{server.base}/twin")).text') == "/twin"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

"""However many fetches a script makes, and however it makes them: the limits hold, and nobody else is held up."""

import asyncio
from collections.abc import Sequence

import pytest

from manifests.grants import Limits
from manifests.hosts import Address
from tests.sandbox_runtime.fetching import (
    FetchRunner,
    Names,
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
    "one after the other": "told = [await code(BASE + '/a') for _ in range(50)]",
    "all at once": "told = await asyncio.gather(*[code(BASE + '/a') for _ in range(50)])",
    "in a group of tasks": "async with asyncio.TaskGroup() as group:\n"
    "    told = [group.create_task(code(BASE + '/a')) for _ in range(50)]",
    "by redirects": "told = await asyncio.gather(*[code(BASE + '/round') for _ in range(50)])",
    "given up at once": "told = await asyncio.gather(*[code(BASE + '/hangs', timeout=0.01) for _ in range(50)])",
    "cancelled at once": "tasks = [asyncio.create_task(code(BASE + '/a')) for _ in range(50)]\nawait asyncio.sleep(0)\n"
    "for t in tasks: t.cancel()\ntold = await asyncio.gather(*tasks, return_exceptions=True)",
    "of other methods": "told = [await code(BASE + '/a', method=m) for m in ('HEAD', 'OPTIONS', 'DELETE') * 10]",
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


@pytest.mark.parametrize("times", [1, 3])
async def test_fetches_count_as_calls(run: Runner, server: Server, times: int) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}", requests=1000)
    script = f'for _ in range(50): await portal.fetch("{server.base}/a")'
    for _ in range(times):
        server.requests.clear()
        result = await fetch(script, limits=Limits(tool_calls=7))
        assert result.error is not None
        assert (result.error.code, len(server.requests)) == ("tool_calls_limit", 7)


class Hanging(Names):
    """A name server of the script's own, which answers nothing about some names."""

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        if host.endswith(".hangs.example"):
            self.asked.append(host)
            await asyncio.Event().wait()
        return await super().__call__(host, port)


async def test_names_that_nobody_answers_keep_no_other_caller_waiting(run: Runner, server: Server) -> None:
    names = Hanging({"good.example": [["127.0.0.1"]]})
    fetch = granting(
        run, f"good.example:{server.port}", allow=("*.hangs.example",), requests=1000, names=names
    )
    flood = COUNT + (
        "told = await asyncio.gather(*[code(f'http://n{i}.hangs.example/', timeout=0.05) for i in range(100)])\n"
        "print('reached')\nCounter(told)"
    )
    for _ in range(5):
        result = await fetch(flood)
        assert (result.error, result.stdout, result.value) == (None, "reached\n", {"fetch_timeout": 100})
    assert len(names.asked) <= 16
    other = FetchRunner(run, fetch.network, caller="another")
    assert (
        await other.value(f'(await portal.fetch("http://good.example:{server.port}/twin")).text') == "/twin"
    )


HEADS = {
    "many headers": b"".join(b"X-%d: x\r\n" % i for i in range(5000)),
    "one header many times": b"X: x\r\n" * 10_000,
    "one long header": b"X: " + b"x" * 90_000 + b"\r\n",
    "headers of control characters": b"".join(b"X: a%cb\r\n" % i for i in (1, 7, 27, 127)),
    "headers of all bytes": b"X: " + bytes(range(0x80, 0x100)) + b"\r\n",
}


@pytest.mark.parametrize("name", HEADS)
async def test_heads_of_every_kind_are_read_or_refused_in_no_time(
    run: Runner, server: Server, name: str
) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}")
    server.answers["/"] = b"HTTP/1.1 200 OK\r\n" + HEADS[name] + b"Content-Length: 2\r\n\r\nok"
    script = f'{COUNT}first = await code("{server.base}/")\nprint("reached")\n[first, await code("{server.base}/twin")]'
    async with watched() as delay:
        result = await fetch(script)
    assert (result.error, result.stdout) == (None, "reached\n")
    assert result.value[0] in (200, "fetch_failed")
    assert result.value[1] == 200
    assert delay.seconds < MOST_SECONDS


def chunked(trailers: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + trailers + b"\r\n"


INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"
LONG = {
    "header lines": (b"HTTP/1.1 200 OK\r\n" + b"a:b\r\n" * 15_000 + b"\r\n", "fetch_failed"),
    "header lines in reason": (
        b"HTTP/1.1 200 OK\r\n" + b"a:b\r\n" * 400 + b"Content-Length: 600\r\n\r\n" + b"\n" * 600,
        200,
    ),
    "interim answers": (INTERIM * 2000 + response(b"ok"), "fetch_failed"),
    "interim answers in reason": (INTERIM * 20 + response(b"ok"), 200),
    "trailers": (chunked(b"a:b\r\n" * 15_000), "fetch_failed"),
    "trailers in reason": (chunked(b"a:b\r\n" * 50), 200),
    "chunks": (chunked(b"").replace(b"2\r\nok\r\n", b"1\r\nx\r\n" * 40_000), 200),
}


@pytest.mark.parametrize("name", LONG)
async def test_parts_of_an_answer_that_are_no_body_have_few_lines(
    run: Runner, server: Server, name: str
) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}")
    server.answers["/"], expected = LONG[name]
    script = f'{COUNT}[await code("{server.base}/"), await code("{server.base}/twin")]'
    assert await fetch.value(script) == [expected, 200]


async def test_interim_answers_without_end_end_the_fetch(run: Runner, server: Server) -> None:
    async def never_done(request: Request, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(INTERIM * 100)
            await writer.drain()

    fetch = granting(run, f"127.0.0.1:{server.port}")
    server.answers["/"] = never_done
    assert await fetch.code(f'await portal.fetch("{server.base}/")') == "fetch_failed"
    assert fetch.states == ["unknown"]


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

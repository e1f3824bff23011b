"""However many fetches a script makes, and however it makes them: the limits hold, and nobody else is held up."""

import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.fetching import Server, granting, hanging, redirect, response
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


@pytest.mark.parametrize("times", [1, 3])
async def test_fetches_count_as_calls(run: Runner, server: Server, times: int) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}", requests=1000)
    script = f'for _ in range(50): await portal.fetch("{server.base}/a")'
    for _ in range(times):
        server.requests.clear()
        result = await fetch(script, limits=Limits(tool_calls=7))
        assert (result.error.code, len(server.requests)) == ("tool_calls_limit", 7)


HEADS = {
    "many headers": b"".join(b"X-%d: x\r\n" % i for i in range(5000)),
    "one long header": b"X: " + b"x" * 90_000 + b"\r\n",
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

"""A script that is granted some hosts reaches no other, whatever it writes, and whatever names and servers answer.

Each attack prints a marker after its attacking line, and has a harmless twin that is answered. `victim` listens where
no script may go; nothing ever arrives there.
"""

import json
from collections.abc import AsyncIterator
from ipaddress import ip_address

import httpx2
import pytest

from manifests.constraints import AddressClass, classify_address
from manifests.json_value import Json
from tests.sandbox_runtime.fetching import FetchRunner, Names, Server, granting, redirect, response, served
from tests.sandbox_runtime.running import Runner
from tests.security.hostile import RAW_HOST, words

pytestmark = pytest.mark.anyio

TRYING = """
async def trying(url, **more):
    try:
        answer = await portal.fetch(url, **more)
        told = [answer.status, answer.text]
    except (ToolError, TypeError) as error:
        told = [getattr(error, "code", "TypeError")]
    print("reached")
    return told
"""


@pytest.fixture
async def victim() -> AsyncIterator[Server]:
    async with served() as victim:
        yield victim
        assert victim.requests == []


@pytest.fixture
def names(server: Server) -> Names:
    return Names({name: [["127.0.0.1"]] for name in ("granted.example", "localhost", "evil.example")})


@pytest.fixture
def fetch(run: Runner, server: Server, names: Names) -> FetchRunner:
    """Grants one private host on one port, and names at public addresses."""
    allow = ("public.example", "*.wild.example", "public.example:8443")
    return granting(run, f"granted.example:{server.port}", allow=allow, names=names)


async def attacked(fetch: FetchRunner, server: Server, url: Json, **more: Json) -> list[Json]:
    """The error of an attack; its twin, the granted host, has to be answered in the same run."""
    twin = f"http://granted.example:{server.port}/twin"
    script = (
        f"{TRYING}\nattack, more = json.loads({json.dumps(json.dumps([url, more]))})\n"
        f"[await trying(attack, **more), await trying({twin!r})]"
    )
    result = await fetch(f"import json\n{script}")
    assert (result.error, result.stdout) == (None, "reached\nreached\n")
    told, answer = result.value
    assert answer == [200, "/twin"]
    return told  # type: ignore[no-any-return]


URLS = [
    # The victim's address, in every spelling.
    "http://127.0.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://127.1:{port}/",
    "http://0.0.0.0:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://[::]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://127\u30020\u30020\u30021:{port}/",
    "http://loc\u00adalhost:{port}/",
    "http://evil.example:{port}/",
    # A granted host, and something else that a parser may take for the host.
    "http://granted.example\\@127.0.0.1:{port}/",
    "http://user:password@granted.example:{granted}/",
    "http://127.0.0.1:{port}\\granted.example/",
    "http://granted.example:{port}/",
    "http://granted.example.evil.example:{granted}/",
    "http://evil-granted.example:{granted}/",
    "http://granted%2eexample:{granted}/",
    "http://wild.example:{granted}/",
    "http://evilwild.example/",
    # No HTTP at all.
    "file:///etc/passwd",
    "gopher://granted.example:{granted}/_GET%20/",
    "unix:///var/run/docker.sock",
    "ws://granted.example:{granted}/",
    "//granted.example:{granted}/",
    "granted.example:{granted}/",
    "",
    "http://:{granted}/",
    # Ports and characters that no URL has.
    "http://granted.example:65536/",
    "http://granted.example:{granted}/\r\nHost: evil.example\r\n\r\n",
    "http://granted.example\t:{granted}/",
    "http://granted.example:{granted}/\x00",
    "http://granted.example:{granted}/" + "x" * 10_000,
]


@pytest.mark.parametrize("url", URLS, ids=lambda url: ascii(url)[1:50])
async def test_url_without_grant_goes_nowhere(
    fetch: FetchRunner, server: Server, victim: Server, url: str
) -> None:
    url = url.replace("{port}", str(victim.port)).replace("{granted}", str(server.port))
    (code,) = await attacked(fetch, server, url)
    assert code in ("not_granted", "invalid_arguments")
    assert fetch.states == ["refused", "done"]
    assert len(server.requests) == 1


@pytest.mark.parametrize("url", [None, 7, True, [], ["http://granted.example/"], {"url": "x"}])
async def test_url_that_is_no_text_goes_nowhere(fetch: FetchRunner, server: Server, url: Json) -> None:
    raw = (
        f"import json\nline = json.dumps({{'url': json.loads({json.dumps(json.dumps(url))})}})\n"
        "print('reached')\njson.loads(host.exchange(f'1 portal.fetch {line}', -1))[0][1:3]"
    )
    result = await fetch(RAW_HOST + raw)
    assert (result.error, result.stdout, result.value) == (None, "reached\n", [0, "invalid_arguments"])
    assert server.requests == []


NOT_PUBLIC = words(
    """
    127.0.0.1 127.255.255.254 10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255
    100.64.0.1 100.127.255.255 169.254.0.1 169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16
    192.0.0.192 0.0.0.0 0.1.2.3 192.0.0.1 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.1
    203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 ::1 :: ::2 ::ffff:127.0.0.1 ::ffff:8.8.8.8
    ::ffff:0:127.0.0.1 ::127.0.0.1 fe80::1 febf::1 fec0::1 fc00::1 fdff::1 fd00:ec2::254 ff02::1 ff0e::1
    64:ff9b::127.0.0.1 64:ff9b::8.8.8.8 64:ff9b:1::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:10::1
    2001:db8::1 2002:7f00:1:: 2002:808:808:: 3fff::1 100::1 5f00::1 4000::1
    """
)
PUBLIC = words(
    """
    8.8.8.8 1.1.1.1 9.255.255.255 11.0.0.0 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0
    100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255 169.255.0.0 198.17.255.255 198.20.0.0
    223.255.255.255 168.63.129.15 2606:4700:4700::1111 2001:200::1 2001:4860:4860::8888 2003::1 2a00:1450::1
    """
)


@pytest.mark.parametrize("address", NOT_PUBLIC)
async def test_name_that_stands_for_an_address_that_is_not_public_goes_nowhere(
    fetch: FetchRunner, server: Server, names: Names, address: str
) -> None:
    names.answers["public.example"] = [[address]]
    names.answers["mixed.wild.example"] = [["8.8.8.8", address]]
    for url in ("http://public.example/", "https://public.example/", "http://mixed.wild.example/"):
        assert await attacked(fetch, server, url) == ["address_not_allowed"]
        assert fetch.states == ["refused", "done"]


def test_addresses_beside_the_special_ones_are_public() -> None:
    for address in PUBLIC:
        assert classify_address(ip_address(address)) is AddressClass.PUBLIC


METADATA = words("169.254.169.254 169.254.1.1 fe80::1 100.100.100.200 168.63.129.16 fd00:ec2::254")


@pytest.mark.parametrize("address", METADATA)
async def test_metadata_has_to_be_written_out_as_an_address(run: Runner, address: str) -> None:
    """Also for a host that may be private. The twin is only decided, for no test may send anything there."""
    names = Names({"metadata.example": [[address]]})
    literal = f"[{address}]" if ":" in address else address
    url = f"http://{literal}/"
    by_name = granting(run, "metadata.example", "*.example", names=names)
    assert await by_name.code('await portal.fetch("http://metadata.example/")') == "address_not_allowed"
    assert (
        await granting(run, allow=(literal, "*")).code(f'await portal.fetch("{url}")')
        == "address_not_allowed"
    )
    allowed = await granting(run, literal).network.check(httpx2.URL(url))
    assert allowed.addresses == (ip_address(address),)


UNREACHABLE = words("0.0.0.0 224.0.0.1 255.255.255.255 :: ::ffff:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::")


@pytest.mark.parametrize("address", UNREACHABLE)
async def test_some_addresses_cannot_be_granted_at_all(run: Runner, server: Server, address: str) -> None:
    literal = f"[{address}]:{server.port}" if ":" in address else f"{address}:{server.port}"
    fetch = granting(run, literal, f"127.0.0.1:{server.port}")
    assert await fetch.code(f'await portal.fetch("http://{literal}/")') == "address_not_allowed"
    assert server.requests == []
    assert await fetch.value(f'(await portal.fetch("{server.base}/twin")).text') == "/twin"


async def test_any_host_does_not_mean_any_address(run: Runner, server: Server, victim: Server) -> None:
    names, allow = Names({"a.example": [["127.0.0.1"]]}), ("*", f"*:{victim.port}")
    fetch = granting(run, f"127.0.0.1:{server.port}", allow=allow, names=names)
    for host in ("127.0.0.1", "a.example", "[::1]"):
        url = f"http://{host}:{victim.port}/"
        assert await fetch.code(f'await portal.fetch("{url}")') == "address_not_allowed"
    assert await fetch.value(f'(await portal.fetch("{server.base}/twin")).text') == "/twin"


async def test_name_is_looked_up_once(fetch: FetchRunner, server: Server, names: Names) -> None:
    """Exactly the resolved addresses are connected to."""
    names.answers["granted.example"] = [["127.0.0.1"], ["169.254.169.254"]]
    assert await fetch.value(f'(await portal.fetch("http://granted.example:{server.port}/a")).text') == "/a"
    assert names.asked == ["granted.example"]


async def test_name_that_changes_its_answer_is_looked_at_again_for_each_request(
    fetch: FetchRunner, server: Server, names: Names
) -> None:
    url = f"http://granted.example:{server.port}"
    server.answers["/from"] = redirect("/to")
    names.answers["granted.example"] = [["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1"]]
    assert await fetch.code(f'await portal.fetch("{url}/from")') == "address_not_allowed"
    assert fetch.states == ["done"]
    assert [request.path for request in server.requests] == ["/from"]
    assert await fetch.value(f'(await portal.fetch("{url}/from")).text') == "/to"


SAME_HOST = "\\\\127.0.0.1:{port}\\"
"""To some a way to another host, and here a strange path of the same."""

LOCATIONS = [
    "http://127.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://evil.example:{port}/",
    "http://user:password@granted.example:{granted}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://public.example/",
    "file:///etc/passwd",
    "http://granted.example:{granted}x/",
    SAME_HOST,
    "/\xe4\xf6\xfc\x80" * 3000,
]


@pytest.mark.parametrize("location", LOCATIONS, ids=lambda location: ascii(location)[1:50])
async def test_redirect_leads_nowhere_else(
    fetch: FetchRunner, server: Server, victim: Server, names: Names, location: str
) -> None:
    names.answers["public.example"] = [["10.0.0.1"]]
    target = location.replace("{port}", str(victim.port)).replace("{granted}", str(server.port))
    server.answers["/from"] = redirect(target)
    server.answers["/right"] = redirect("/twin")
    told = await attacked(fetch, server, f"http://granted.example:{server.port}/from")
    if location == SAME_HOST:
        assert told == [200, f"/{target}"]
    else:
        assert told[0] in (
            "not_granted",
            "invalid_arguments",
            "address_not_allowed",
            "fetch_failed",
            "too_many_redirects",
        )
        assert fetch.states[0] == "done"
    assert await attacked(fetch, server, f"http://granted.example:{server.port}/right") == [200, "/twin"]


async def test_redirects_without_end_are_ended(fetch: FetchRunner, server: Server) -> None:
    server.answers["/loop"] = redirect("/loop")
    assert await attacked(fetch, server, f"http://granted.example:{server.port}/loop") == [
        "too_many_redirects"
    ]
    assert [request.path for request in server.requests] == ["/loop"] * 6 + ["/twin"]


REQUESTS: list[dict[str, Json]] = [
    {"method": "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\nGET"},
    {"method": "CONNECT"},
    {"headers": [["X", "a\r\nHost: evil.example"]]},
    {"headers": [["X\r\nX-Evil", "1"]]},
    {"headers": [["X", "a\x00b"]]},
    {"headers": [["X Y", "1"]]},
    {"headers": [["Host", "evil.example"]]},
    {"headers": [["Content-Length", "0"]]},
    {"headers": [["Connection", "upgrade"]]},
    {"headers": [["Expect", "100-continue"]]},
    {"headers": [["Proxy-Authorization", "x"]]},
    {"headers": {"X": "1"}},
    {"headers": [["X", "1"]] * 101},
    {"headers": [["X", "x" * 20_000]]},
    {"body": "%%%"},
    {"timeout": 0},
    {"proxy": "http://127.0.0.1:{port}"},
    {"verify": False},
]


@pytest.mark.parametrize("more", REQUESTS, ids=lambda more: json.dumps(more)[:50])
async def test_forged_request_is_not_sent(fetch: FetchRunner, server: Server, more: dict[str, Json]) -> None:
    attack = {"url": f"http://granted.example:{server.port}/attack", **more}
    twin = {
        "url": f"http://granted.example:{server.port}/twin",
        "headers": [["X", "1"]],
        "body": "eA==",
        "timeout": 5,
    }
    raw = (
        f"import json\nlines = json.loads({json.dumps(json.dumps([attack, twin]))})\n"
        "told = []\nfor number, line in enumerate(lines, 1):\n"
        "    told.append(json.loads(host.exchange(f'{number} portal.fetch {json.dumps(line)}', -1))[0][1:3])\n"
        "    print('reached')\n[told[0], told[1][1]['status']]"
    )
    result = await fetch(RAW_HOST + raw)
    assert (result.error, result.stdout) == (None, "reached\n" * 2)
    assert result.value == [[0, "invalid_arguments"], 200]
    assert [request.path for request in server.requests] == ["/twin"]


async def test_connection_of_one_host_is_never_used_for_another(run: Runner, server: Server) -> None:
    """A server that keeps its connections open sees each host on one of its own."""
    names = Names({name: [["127.0.0.1"]] for name in ("a.example", "b.example")})
    hosts = (f"a.example:{server.port}", f"b.example:{server.port}")
    fetch = granting(run, *hosts, names=names)
    server.answers["/"] = response(b"x", Connection="keep-alive")
    script = f'r = await asyncio.gather(*[portal.fetch(f"http://{{h}}/") for h in {hosts!r} * 3])\nlen(r)'
    assert await fetch.value(script) == 6
    assert sorted({request.headers["host"] for request in server.requests}) == sorted(hosts)
    assert len(server.requests) == 6

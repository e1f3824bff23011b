"""No connection is made, none is taken, and no name is looked up."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, raises

pytestmark = pytest.mark.anyio

DENIED = raises("PermissionError")
NO_NAMES = raises("socket.gaierror")
BAD_DESCRIPTOR = raises("OSError: [Errno 8]")
QUOTED = "urllib.parse.quote('a b')"

ATTACKS = [
    Attack("socket", "socket.socket()", DENIED, "socket.inet_aton('127.0.0.1')[0]", 127, "import socket"),
    Attack(
        "connect",
        "socket.create_connection(('127.0.0.1', PORT))",
        NO_NAMES,
        "socket.inet_ntoa(b'\\x7f\\0\\0\\1')",
        "127.0.0.1",
        "import socket",
    ),
    Attack(
        "datagram",
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
        DENIED,
        "int(socket.SOCK_DGRAM)",
        5,
        "import socket",
    ),
    Attack(
        "six",
        "socket.socket(socket.AF_INET6).connect(('::1', PORT))",
        DENIED,
        "socket.has_ipv6",
        True,
        "import socket",
    ),
    Attack(
        "raw",
        "socket.socket(socket.AF_INET, 3, 1)",
        Fate("script_error"),
        "socket.ntohs(256)",
        1,
        "import socket",
    ),
    Attack(
        "listen",
        "socket.create_server(('127.0.0.1', 0))",
        DENIED,
        "socket.getdefaulttimeout()",
        None,
        "import socket",
    ),
    Attack("pair", "socket.socketpair()", DENIED, "socket.htonl(1)", 16777216, "import socket"),
    Attack(
        "take_over", "socket.socket(fileno=3)", BAD_DESCRIPTOR, "int(socket.SHUT_RDWR)", 3, "import socket"
    ),
    Attack(
        "take_over_stdin",
        "socket.socket(fileno=0).recv(1)",
        Fate("script_error"),
        "socket.SOMAXCONN > 0",
        True,
        "import socket",
    ),
    Attack(
        "duplicate",
        "socket.fromfd(0, socket.AF_INET, socket.SOCK_STREAM)",
        raises("OSError"),
        "int(socket.SHUT_RD)",
        1,
        "import socket",
    ),
    Attack(
        "raw_module",
        "_socket.socket().connect(('127.0.0.1', PORT))",
        DENIED,
        "_socket.inet_aton('0.0.0.1')[3]",
        1,
        "import _socket",
    ),
    Attack(
        "name", "socket.getaddrinfo('localhost', 80)", NO_NAMES, "socket.EAI_FAIL < 0", True, "import socket"
    ),
    Attack(
        "leak_by_name",
        "socket.gethostbyname('secret.example.com')",
        NO_NAMES,
        "str(ipaddress.ip_address('::1'))",
        "::1",
        "import ipaddress, socket",
    ),
    Attack(
        "name_of_an_address",
        "socket.gethostbyaddr('127.0.0.1')",
        Fate("script_error"),
        "str(ipaddress.ip_address(1))",
        "0.0.0.1",
        "import ipaddress, socket",
    ),
    Attack(
        "http",
        "urllib.request.urlopen(f'http://127.0.0.1:{PORT}')",
        raises("urllib.error.URLError"),
        QUOTED,
        "a%20b",
        "import urllib.parse, urllib.request",
    ),
    Attack(
        "file_by_url",
        "urllib.request.urlopen('file://' + FLAG).read()",
        raises("urllib.error.URLError"),
        "urllib.parse.urlsplit('file:///a').path",
        "/a",
        "import urllib.parse, urllib.request",
    ),
    Attack(
        "data_by_url",
        "urllib.request.urlopen(f'ftp://127.0.0.1:{PORT}/')",
        raises("urllib.error.URLError"),
        "urllib.request.urlopen('data:,a').read().decode()",
        "a",
        "import urllib.request",
    ),
    Attack(
        "http_client",
        "http.client.HTTPConnection('127.0.0.1', PORT).request('GET', '/')",
        NO_NAMES,
        "http.client.responses[404]",
        "Not Found",
        "import http.client",
    ),
    Attack(
        "proxy",
        "os.environ.update(http_proxy=f'http://127.0.0.1:{PORT}')\nurllib.request.urlopen('http://example.com')",
        raises("urllib.error.URLError"),
        "urllib.request.getproxies()",
        {},
        "import os, urllib.request",
    ),
    Attack("ftp", "ftplib.FTP('127.0.0.1')", NO_NAMES, "ftplib.parse257('257 \"a\"')", "a", "import ftplib"),
    Attack(
        "mail",
        "smtplib.SMTP('127.0.0.1', PORT)",
        NO_NAMES,
        "smtplib.quoteaddr('a@b')",
        "<a@b>",
        "import smtplib",
    ),
    Attack(
        "asyncio_connection",
        "await asyncio.open_connection('127.0.0.1', PORT)",
        DENIED,
        "asyncio.StreamReader.__name__",
        "StreamReader",
    ),
    Attack(
        "asyncio_server",
        "await asyncio.start_server(print, '127.0.0.1', 0)",
        raises("OSError"),
        "asyncio.StreamWriter.__name__",
        "StreamWriter",
    ),
    Attack(
        "asyncio_datagram",
        "await loop().create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=('127.0.0.1', PORT))",
        DENIED,
        "asyncio.DatagramProtocol.__name__",
        "DatagramProtocol",
        "loop = asyncio.get_running_loop",
    ),
    Attack(
        "log_to_a_socket",
        "logging.handlers.SysLogHandler(address=('127.0.0.1', PORT))",
        Fate("script_error"),
        "logging.handlers.SYSLOG_UDP_PORT",
        514,
        "import logging.handlers",
    ),
    Attack(
        "remote_call",
        "xmlrpc.client.ServerProxy(f'http://127.0.0.1:{PORT}').x()",
        NO_NAMES,
        "xmlrpc.client.loads(xmlrpc.client.dumps((1,)))[0]",
        [1],
        "import xmlrpc.client",
    ),
    Attack(
        "thousands",
        "sockets = [socket.socket() for _ in range(10_000)]",
        DENIED,
        "[socket.ntohs(i) for i in range(2)]",
        [0, 256],
        "import socket",
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_no_connection_leads_out(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_what_needs_no_connection_works(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)

"""`portal.fetch` does what a script means by it, from hosts that are granted."""

import datetime
import gzip
import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.sandbox_runtime.fetching import (
    FetchRunner,
    Names,
    Server,
    granting,
    redirect,
    response,
    served,
)
from tests.sandbox_runtime.running import Runner

TEXT = b"text " * 50_000


async def test_answer_is_there_as_text_json_and_bytes(fetch: FetchRunner, server: Server) -> None:
    server.answers["/a"] = response(b'{"n": 1}', "201 Created", Content_Type="application/json", X_More="y")
    script = (
        f'r = await portal.fetch("{server.base}/a")\n'
        "kinds = r.headers['CONTENT-type'], r.headers.get('x-more')\n"
        "[r.status, r.ok, r.text, r.json(), list(r.bytes)[:2], *kinds, r.url]"
    )
    told = [201, True, '{"n": 1}', {"n": 1}, [123, 34], "application/json", "y", f"{server.base}/a"]
    assert await fetch.value(script) == told
    assert fetch.states == ["done"]


@pytest.mark.parametrize("params", ['{"y": ["ä", 2], "z": None}', '[("y", ["ä", 2]), ("z", None)]'])
async def test_request_is_sent_as_it_was_meant(fetch: FetchRunner, server: Server, params: str) -> None:
    script = (
        f'await portal.fetch("{server.base}/a?x=1", method="put", params={params},\n'
        '    json={"k": "ü"}, headers={"X-One": "1", "Authorization": "Bearer t", "Accept": "text/html"})\n1'
    )
    await fetch.value(script)
    (request,) = server.requests
    assert request.line == "PUT /a?x=1&y=%C3%A4&y=2 HTTP/1.1"
    assert json.loads(request.body) == {"k": "ü"}
    expected = {
        "host": f"127.0.0.1:{server.port}",
        "x-one": "1",
        "authorization": "Bearer t",
        "accept": "text/html",
        "content-type": "application/json",
    }
    assert expected.items() <= request.headers.items()


@pytest.mark.parametrize(
    ("status", "method", "after"),
    [
        ("301 Moved", "POST", "GET"),
        ("302 Found", "POST", "GET"),
        ("303 See Other", "PUT", "GET"),
        ("307 Temporary", "POST", "POST"),
        ("308 Permanent", "PUT", "PUT"),
        ("302 Found", "HEAD", "HEAD"),
    ],
)
async def test_redirect_is_followed_as_browsers_do(
    fetch: FetchRunner, server: Server, status: str, method: str, after: str
) -> None:
    server.answers["/from"] = redirect("to?x=1#fragment", status)
    body = "" if method == "HEAD" else ', body="sent"'
    script = f'r = await portal.fetch("{server.base}/from", method="{method}"{body}, headers={{"X-A": "1"}})\nr.url'
    assert await fetch.value(script) == f"{server.base}/to?x=1"
    followed = server.requests[1]
    assert followed.line == f"{after} /to?x=1 HTTP/1.1"
    assert followed.body == (b"sent" if after == method and body else b"")
    assert followed.headers["x-a"] == "1"


async def test_secrets_stay_with_the_host_they_were_meant_for(run: Runner, server: Server) -> None:
    names = Names({"other.example": [["127.0.0.1"]]})
    fetch = granting(run, f"127.0.0.1:{server.port}", f"other.example:{server.port}", names=names)
    server.answers["/near"] = redirect("/to")
    server.answers["/far"] = redirect(f"http://other.example:{server.port}/to")
    for path in ("/near", "/far"):
        headers = (
            '{"Authorization": "secret", "Cookie": "secret", "X-Api-Key": "secret", "Range": "bytes=0-"}'
        )
        await fetch.value(f'(await portal.fetch("{server.base}{path}", headers={headers})).status')
    near, far = server.requests[1], server.requests[3]
    assert [near.headers[name] for name in ("authorization", "cookie", "x-api-key")] == ["secret"] * 3
    assert "secret" not in far.headers.values()
    assert (far.headers["host"], far.headers["range"]) == (f"other.example:{server.port}", "bytes=0-")


async def test_mistakes_in_arguments_are_told_where_they_are(fetch: FetchRunner, server: Server) -> None:
    for arguments in ("", '"x", verb="GET"', '"x", json=1, body="x"'):
        result = await fetch(f"await portal.fetch({arguments})")
        assert result.error is not None
        assert result.error.message.startswith("TypeError")
    for body in ("5", '{"a": 1}'):
        result = await fetch(f'await portal.fetch("{server.base}/", body={body})')
        assert result.error is not None and "text or bytes as body, not " in result.error.message
    result = await fetch(f'await portal.fetch("{server.base}/", body=[*map(portal.sleep, [1])][0])')
    assert result.error is not None and "was not awaited" in result.error.message
    result = await fetch(f'await portal.fetch("{server.base}/")')
    assert result.error is not None
    assert (result.error.code, "response.json()" in result.error.message) == ("result_not_json", True)


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS of a server with this name, and of a client that trusts only it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    known = x509.SubjectAlternativeName([x509.DNSName(name)])
    unsigned = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now - day, now + day)
    pem = unsigned.add_extension(known, critical=False).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    file = folder / f"{name}.pem"
    file.write_bytes(pem + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    return serving, ssl.create_default_context(cadata=pem.decode())


async def test_certificate_has_to_be_the_hosts_whatever_its_address(run: Runner, tmp_path: Path) -> None:
    serving, trusted = certificate(tmp_path, "good.example")
    names = Names({"good.example": [["127.0.0.1"]], "bad.example": [["127.0.0.1"]]})
    async with served(serving) as server:
        hosts = (f"good.example:{server.port}", f"bad.example:{server.port}")
        fetch = granting(run, *hosts, names=names, trusted=trusted)
        assert await fetch.value(f'(await portal.fetch("https://{hosts[0]}/a")).text') == "/a"
        assert await fetch.code(f'await portal.fetch("https://{hosts[1]}/a")') == "fetch_failed"
        assert fetch.states == ["not_started"]
        untrusting = await granting(run, hosts[0], names=names)(f'await portal.fetch("https://{hosts[0]}/")')
        assert untrusting.error is not None and untrusting.error.code == "fetch_failed"
        assert "certificate of good.example is not trusted: self-signed" in untrusting.error.message
        assert "SSL_CERT_FILE" in untrusting.error.hint
    assert [request.headers["host"] for request in server.requests] == [hosts[0]]


async def test_host_that_is_not_reached_got_no_request(run: Runner) -> None:
    async with served() as gone:
        pass
    fetch = granting(run, f"127.0.0.1:{gone.port}")
    result = await fetch(f'await portal.fetch("{gone.base}/")')
    assert result.error is not None and fetch.states == ["not_started"]
    assert "no request" in result.error.hint and "processed" not in result.error.hint


async def test_name_that_is_not_found_is_told_as_that(fetch: FetchRunner) -> None:
    result = await fetch('await portal.fetch("http://public.example/")')
    assert result.error is not None and fetch.states == ["not_started"]
    assert result.error.code == "fetch_failed" and "was not found" in result.error.hint


async def test_body_that_comes_packed_is_given_as_it_came(fetch: FetchRunner, server: Server) -> None:
    server.answers["/"] = response(gzip.compress(TEXT), Content_Encoding="gzip")
    script = (
        f'import gzip\ngzip.decompress((await portal.fetch("{server.base}/")).bytes) == b"text " * 50_000'
    )
    assert await fetch.value(script) is True
    assert server.requests[0].headers["accept-encoding"] == "identity"

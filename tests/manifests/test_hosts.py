"""Hosts as a manifest names them, and what they mean."""

import pytest

from manifests.constraints import HostPattern, canonical_host, is_address


@pytest.mark.parametrize(
    ("pattern", "scheme", "host", "port", "is_meant"),
    [
        ("api.example.com", "https", "api.example.com", 443, True),
        ("api.example.com", "http", "api.example.com", 80, True),
        ("API.Example.COM.", "https", "api.example.com", 443, True),
        ("api.example.com:8443", "https", "api.example.com", 8443, True),
        ("*.example.com", "https", "a.example.com", 443, True),
        ("*", "https", "anything.example", 443, True),
        ("*:8080", "http", "anything.example", 8080, True),
        ("[FD00::0:7]:81", "http", "fd00::7", 81, True),
        ("api.example.com", "https", "api.example.com", 80, False),
        ("api.example.com:8443", "https", "api.example.com", 443, False),
        ("api.example.com", "https", "x.api.example.com", 443, False),
        ("*.example.com", "https", "example.com", 443, False),
        ("*.example.com", "https", "evilexample.com", 443, False),
        ("*.example.com", "https", "a.example.com.evil.example", 443, False),
    ],
)
def test_pattern_means_a_host(pattern: str, scheme: str, host: str, port: int, is_meant: bool) -> None:
    assert HostPattern.parse(pattern).matches(scheme, host, port) is is_meant


NO_HOSTS = [
    "", ":80", "a:0", "a:65536", "http://a", "a/b", "user@a", "a..b", "-a", "*.", "a.*", "*.10.0.0.1",
    "0x7f.1", "2130706433", "::1", "[fe80::1%lo]", "bücher.example", "a" * 64, "a." * 130,
]  # fmt: skip


def test_what_is_no_host_is_refused() -> None:
    for text in NO_HOSTS:
        with pytest.raises(ValueError):
            pytest.fail(f"{text!r} is taken for {HostPattern.parse(text)}")


@pytest.mark.parametrize(("text", "host", "has_address"), [
    ("A.B.", "a.b", False), ("127.0.0.1", "127.0.0.1", True), ("FD00:0::7", "fd00::7", True),
    ("a1", "a1", False),
])  # fmt: skip
def test_host_has_one_canonical_form(text: str, host: str, has_address: bool) -> None:
    assert canonical_host(text) == host
    assert is_address(host) is has_address
    assert canonical_host(host) == host


def test_pattern_is_told_as_it_is_written() -> None:
    for text in ("api.example.com", "*.example.com:8443", "[fd00::7]:81", "10.0.0.7", "*"):
        assert str(HostPattern.parse(text)) == text

"""Where a request may go: a URL, read once, its host looked up once, and every address of it looked at."""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

import httpx2

from manifests.grants import NetworkGrant
from manifests.hosts import (
    DEFAULT_PORTS,
    Address,
    HostPattern,
    Reach,
    Resolver,
    canonical_host,
    is_address,
    reach_of,
)
from sandbox_runtime.grants.fetch_error import FetchError

MAX_URL_CHARS = 8192
MAX_ADDRESSES = 20

_MAX_TOLD_HOSTS = 20


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked URL: `host` in canonical form, and the only addresses that may be connected to."""

    url: httpx2.URL
    host: str
    port: int
    addresses: tuple[Address, ...]


class Destinations:
    """Decides for one manifest."""

    def __init__(self, grant: NetworkGrant, where: Callable[[str], str]) -> None:
        self._allow = tuple(map(HostPattern.parse, grant.allow))
        self._private = tuple(map(HostPattern.parse, grant.private))
        self._where = where

    async def check(self, url: httpx2.URL, resolve: Resolver) -> Destination:
        """Look a URL over, and its host up.

        Raises:
            FetchError: It is no URL of http or https, or leads where the manifest does not allow.
        """
        host, port = _host_and_port(url)
        allowed = [p for p in self._allow if p.matches(url.scheme, host, port)]
        private = [p for p in self._private if p.matches(url.scheme, host, port)]
        if not (allowed or private):
            raise self._not_granted(host, port)
        addresses = await _addresses(host, port, resolve)
        for address in addresses:
            reach = reach_of(address)
            by_address = is_address(host) and any(p.host == host for p in (*allowed, *private))
            if not (
                reach is Reach.PUBLIC
                or (reach is Reach.PRIVATE and private)
                or (reach is Reach.BY_ADDRESS and by_address and private)
            ):
                raise self._not_public(host, reach)
        return Destination(url, host, port, addresses)

    def _not_granted(self, host: str, port: int) -> FetchError:
        patterns = [str(pattern) for pattern in (*self._allow, *self._private)]
        more = f" and {len(patterns) - _MAX_TOLD_HOSTS} more" if len(patterns) > _MAX_TOLD_HOSTS else ""
        return FetchError(
            "not_granted",
            f"scripts are not granted {host} on port {port}",
            f"They may fetch from {', '.join(patterns[:_MAX_TOLD_HOSTS])}{more}. "
            f"An operator can change that at {self._where('allow')}.",
        )

    def _not_public(self, host: str, reach: Reach) -> FetchError:
        if reach is Reach.PRIVATE:
            hint = f"An operator can list it under private ({self._where('private')})."
        elif reach is Reach.BY_ADDRESS:
            hint = f"An operator can list the address itself under private ({self._where('private')})."
        else:
            hint = ""
        return FetchError("address_not_allowed", f"{host} is at an address that scripts may not reach", hint)


async def _addresses(host: str, port: int, resolve: Resolver) -> tuple[Address, ...]:
    if is_address(host):
        return (ipaddress.ip_address(host),)
    try:
        addresses = tuple(dict.fromkeys(await resolve(host, port)))
    except OSError:
        addresses = ()
    if not addresses:
        raise FetchError("fetch_failed", f"the name {host} is not known", state="not_started")
    return addresses[:MAX_ADDRESSES]


def parse_url(text: str) -> httpx2.URL:
    """Raises FetchError."""
    if len(text) > MAX_URL_CHARS:
        raise FetchError("invalid_arguments", f"the URL has more than {MAX_URL_CHARS:,} characters")
    try:
        return httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError, TypeError):
        raise _no_url(text) from None


def _host_and_port(url: httpx2.URL) -> tuple[str, int]:
    if url.scheme not in DEFAULT_PORTS:
        message = f"only http and https are fetched, not {url.scheme[:20]!r}"
        raise FetchError("invalid_arguments", message)
    if url.userinfo:
        raise FetchError(
            "invalid_arguments", "a URL holds no user and no password", "Send an Authorization header."
        )
    try:
        host = canonical_host(url.raw_host.decode("ascii"))
        port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
    except ValueError:
        raise _no_url(str(url)) from None
    if not 0 < port < 65536:
        raise _no_url(str(url))
    return host, port


def _no_url(text: str) -> FetchError:
    message = f"{text[:200]!r} is no URL that can be fetched"
    return FetchError("invalid_arguments", message, "Write it like https://api.example.com/path?query.")

"""How the environment has an HTTP upstream reached: by which proxy, and with which certificate authorities."""

import os
import ssl
from dataclasses import dataclass
from functools import cache
from typing import Final

import httpx2
from httpx2._utils import URLPattern, get_environment_proxies

from upstreams.errors import UpstreamUnavailableError
from upstreams.transports.http_credentials import origin
from upstreams.transports.http_errors import describe

_PROXIES: Final = ("http", "https", "socks5", "socks5h")


@dataclass(frozen=True)
class Route:
    """`proxy` is its URL, None for none; `variable` names it for people, without credentials."""

    url: httpx2.URL
    proxy: str | None = None
    variable: str = ""

    @classmethod
    def to(cls, url: str) -> "Route":
        """The route to an upstream, also past NO_PROXY. Raises UpstreamUnavailableError: its proxy cannot be used.

        httpx2 would prepare all proxies of the environment, also one that this upstream does not need.
        """
        parsed = httpx2.URL(url)
        proxies = {URLPattern(key): value for key, value in get_environment_proxies().items()}
        pattern = min((each for each in proxies if each.matches(parsed)), default=None)
        if pattern is None or not (proxy := proxies[pattern]):
            return cls(parsed)
        kind = f"{pattern.scheme or 'all'}_proxy"
        name = next((each for each in (kind, kind.upper()) if os.environ.get(each)), "the system's proxy")
        try:
            shown = httpx2.URL(proxy)
        except httpx2.InvalidURL:
            raise UpstreamUnavailableError(f"{name} is not the URL of a proxy") from None
        variable = f"{name}={origin(shown)}"
        if shown.scheme not in _PROXIES:
            fault = f"{variable} is none of {', '.join(_PROXIES)}"
            raise UpstreamUnavailableError(fault, remedy="for socks:// try socks5://")
        return cls(parsed, proxy, variable)

    def told(self, error: httpx2.RequestError) -> str:
        """An error with the host, and what the environment has to do with it."""
        port = self.url.port or (443 if self.url.scheme == "https" else 80)
        said = f"{describe(error)} ({self.url.host}:{port}"
        if self.proxy:
            said += f", through the proxy of {self.variable}; NO_PROXY names hosts that need none"
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            trusted = _named_authorities() or "the system's authorities; SSL_CERT_FILE names others"
            said += f", trusting {trusted}"
        return f"{said})"


@cache
def trusted_authorities() -> ssl.SSLContext:
    """The trusted certificate authorities. Cached: loading them takes 30 to 70 ms.

    Raises UpstreamUnavailableError: those of the environment cannot be read.
    """
    try:
        if not os.environ.get("SSL_CERT_FILE") and not os.path.isdir(os.environ.get("SSL_CERT_DIR") or "/"):
            raise NotADirectoryError("no such folder")
        return httpx2.create_ssl_context()
    except OSError as error:
        named, reason = _named_authorities(), error.strerror or error
        raise UpstreamUnavailableError(f"the certificates of {named} cannot be read: {reason}") from None


def _named_authorities() -> str:
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    return next((f"{name}={os.environ[name]}" for name in names if os.environ.get(name)), "")

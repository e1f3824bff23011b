"""The credentials of requests to an upstream, and their renewal after a refusal."""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from typing import Final, TypeAlias

import anyio
import httpx2

from manifests.portal_manifest import HttpUpstream
from upstreams.errors import UpstreamRefusedError
from upstreams.redaction import Redaction

HeaderRenewal: TypeAlias = Callable[[], Awaitable[tuple[Mapping[str, str], Collection[str]] | None]]
"""Resolves the secrets of configured headers again: returns the headers and the secrets, None on failure."""

RENEWAL_PAUSE_SECONDS: Final = 60.0
"""The shortest time between two renewals, since a 401 makes the operator's commands run again."""


_MAX_REDIRECTS: Final = 5


class HttpCredentials:
    """The credentials of one upstream, for all its connections: the manifest's `headers`.

    They are sent to the upstream's own origin only. `renew` resolves headers with a secret from a command or the
    keyring again. `secrets` are the resolved references of this upstream's section, in `headers` and elsewhere.
    """

    def __init__(
        self,
        spec: HttpUpstream,
        secrets: Collection[str],
        redact: Redaction,
        renew: HeaderRenewal | None = None,
    ) -> None:
        self._url = httpx2.URL(spec.url)
        self._headers: Mapping[str, str] = spec.headers
        self._secrets = frozenset(secrets)
        self._sent = deque[Collection[str]](maxlen=2)
        """The last two sets of renewed secrets: a slow answer may still contain the older ones."""
        self._mask = Redaction(secrets)
        self._redact = redact
        self._renew_headers = renew
        self._renewed_at = -RENEWAL_PAUSE_SECONDS
        self._lock = anyio.Lock()

    async def send(self, request: httpx2.Request, client: httpx2.AsyncClient) -> httpx2.Response:
        """Send a request and follow redirects that keep its method. The body is not read.

        After a 401 it is sent once more if the credentials can be renewed.

        Raises:
            UpstreamError: There are no credentials, or it redirects to another server.
            httpx2.RequestError: It was not sent, or not answered.
        """
        response = await self._send_authorized(request, client)
        for _ in range(_MAX_REDIRECTS):
            following = response.next_request
            if following is None or following.method != request.method:
                break
            await response.aclose()
            response = await self._send_authorized(following, client)
        return response

    def masked(self, text: bytes) -> bytes:
        """JSON from the server, with the upstream's own secrets masked."""
        return self._mask.in_json(text)

    async def headers(self) -> Mapping[str, str]:
        """The current headers, which replace configured ones. Raises UpstreamError: there are no credentials."""
        return self._headers

    async def renewed(self, refused: Mapping[str, str]) -> bool:
        """Renew the headers after a 401 to `refused`. Returns whether there are new ones. Raises UpstreamError."""
        if self._renew_headers is None:
            return False
        async with self._lock:
            if self._headers != refused:  # another call has renewed them
                return True
            if anyio.current_time() - self._renewed_at < RENEWAL_PAUSE_SECONDS:
                return False
            headers, secrets = await self._renew_headers() or ({}, ())
            self._renewed_at = anyio.current_time()
            if headers.items() <= self._headers.items():
                return False
            self._mask_new(secrets)
            self._headers = {**self._headers, **headers}
            return True

    def accepted(self, sent: Mapping[str, str]) -> None:
        """Record that the server accepted these headers."""

    def _mask_new(self, secrets: Collection[str]) -> None:
        """Mask renewed secrets from now on."""
        self._redact.add(secrets)
        self._sent.append(secrets)
        self._mask = Redaction(self._secrets.union(*self._sent))

    async def _send_authorized(self, request: httpx2.Request, client: httpx2.AsyncClient) -> httpx2.Response:
        if origin(self._url) != origin(request.url):
            raise UpstreamRefusedError(
                "redirects to another server, which gets neither requests nor credentials"
            )
        for is_last in (False, True):
            sent = await self.headers()
            request.headers.update(sent)
            response = await client.send(request, stream=True, follow_redirects=False)
            if response.status_code != HTTPStatus.UNAUTHORIZED:
                self.accepted(sent)
                break
            if is_last or not await self.renewed(sent):
                break
            await response.aclose()
        return response


def origin(url: httpx2.URL) -> str:
    """Scheme, host and port, like https://tickets.example:8443."""
    return str(url.copy_with(userinfo=b"", raw_path=b"/", fragment=None)).rstrip("/")

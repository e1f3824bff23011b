"""What a request to an upstream carries so that it is let in, and what can be done when it is not."""

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
"""Gets configured headers anew from where their secrets come from, and those secrets; None if that does not work."""

RENEWAL_PAUSE_SECONDS: Final = 60.0
"""An upstream that answers 401 has the operator's commands run again at most this often."""


_MAX_REDIRECTS: Final = 5


class HttpCredentials:
    """The credentials of one upstream, for all of its connections: the manifest's `headers`.

    They are sent to its own origin, and nowhere else. `renew` gets those anew that hold a secret of a command or the
    keyring. `secrets` are what references in this upstream's entry stood for, in `headers` and elsewhere.
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
        """What was learnt last, and before, which a slow answer may still repeat."""
        self._mask = Redaction(secrets)
        self._redact = redact
        self._renew_headers = renew
        self._renewed_at = -RENEWAL_PAUSE_SECONDS
        self._lock = anyio.Lock()

    async def send(self, request: httpx2.Request, client: httpx2.AsyncClient) -> httpx2.Response:
        """Send a request, and follow redirects that keep its method; the body is not read yet.

        After a 401, which says that nothing was done, it is sent once more if there are other credentials.

        Raises:
            UpstreamError: There are no credentials, or it leads to another server.
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
        """JSON that the server sent, without the secrets that it was sent."""
        return self._mask.in_json(text)

    async def headers(self) -> Mapping[str, str]:
        """What to send now in place of configured headers of the same name. Raises UpstreamError: there is none."""
        return self._headers

    async def renewed(self, refused: Mapping[str, str]) -> bool:
        """After an HTTP 401 to `refused`: whether there are others by now. Raises UpstreamError: none any more."""
        if self._renew_headers is None:
            return False
        async with self._lock:
            if self._headers != refused:  # another call was first
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
        """An answer came that was no 401."""

    def _mask_new(self, secrets: Collection[str]) -> None:
        """Mask what will be sent from now on."""
        self._redact.add(secrets)
        self._sent.append(secrets)
        self._mask = Redaction(self._secrets.union(*self._sent))

    async def _send_authorized(self, request: httpx2.Request, client: httpx2.AsyncClient) -> httpx2.Response:
        own, url = self._url, request.url
        if (own.scheme, own.host, own.port) != (url.scheme, url.host, url.port):
            raise UpstreamRefusedError("leads to another server, which gets neither requests nor credentials")
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

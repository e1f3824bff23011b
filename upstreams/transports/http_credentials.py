"""The credentials of requests to an upstream, and their renewal after a refusal."""

import re
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Final

import anyio
import httpx2

from manifests.portal_manifest import HttpUpstream
from upstreams.errors import UpstreamRefusedError
from upstreams.http_client import origin
from upstreams.redaction import Redaction
from upstreams.secret_sources import HeaderRenewal

RENEWAL_PAUSE_SECONDS: Final = 60.0
"""The shortest time between two renewals, since a 401 makes the operator's commands run again."""


_MAX_REDIRECTS: Final = 5
_PARAMETER: Final = re.compile(r"""([\w-]++)(?:\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"?|([^\s,"]*+)))?|"[^"]*+"?""")

SUBJECT: Final = "subject"  # of a request: the method and tool, which the server may refuse alone
REFUSED_ALONE: Final = "refused_alone"  # of a response: the same credentials are accepted for other requests


class HttpCredentials:
    """The credentials of one upstream, for all its connections: the manifest's `headers`.

    They are sent to the upstream's own origin only. `renew` resolves headers with a secret from a command or the
    keyring again. `secrets` are the resolved references of this upstream's section, in `headers` and elsewhere.
    """

    def __init__(
        self,
        name: str,
        spec: HttpUpstream,
        secrets: Collection[str],
        redact: Redaction,
        renew: HeaderRenewal | None = None,
    ) -> None:
        self._name = name
        self._url = httpx2.URL(spec.url)
        self._headers: Mapping[str, str] = spec.headers
        self.mask = Redaction(secrets)
        """Masks the upstream's own secrets in its messages. A slow answer may still contain those before a renewal."""
        self._redact = redact
        self._renew_headers = renew
        self._renewed_at = -RENEWAL_PAUSE_SECONDS
        self._lock = anyio.Lock()

    async def send(self, request: httpx2.Request, client: httpx2.AsyncClient) -> httpx2.Response:
        """Send a request and follow redirects that keep its method. The body is not read.

        If the credentials are refused, it is sent once more if they can be renewed.

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

    async def headers(self) -> Mapping[str, str]:
        """The current headers, which replace configured ones. Raises UpstreamError: there are no credentials."""
        return self._headers

    async def renewed(self, refused: Mapping[str, str], subject: str = "") -> bool:
        """Renew the headers after `refused`. Returns whether there are new ones. Raises UpstreamError."""
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

    def accepted(self, sent: Mapping[str, str], subject: str = "") -> None:
        """Record that the server accepted these headers."""

    def refused(self, subject: str) -> bool:
        """Record a refusal that a renewal did not fix. Returns whether the server accepts other requests."""
        return False

    def _mask_new(self, secrets: Collection[str]) -> None:
        self._redact.add(self._name, secrets)
        self.mask.add(self._name, secrets)

    async def _send_authorized(self, request: httpx2.Request, client: httpx2.AsyncClient) -> httpx2.Response:
        if origin(self._url) != origin(request.url):
            raise UpstreamRefusedError(
                "redirects to another server, which gets neither requests nor credentials"
            )
        subject = request.extensions.get(SUBJECT, "")
        for is_last in (False, True):
            sent = await self.headers()
            request.headers.update(sent)
            response = await client.send(request, stream=True, follow_redirects=False)
            if not is_unauthorized(response):
                self.accepted(sent, subject)
                break
            if is_last or not await self.renewed(sent, subject):
                response.extensions[REFUSED_ALONE] = self.refused(subject)
                break
            await response.aclose()
        return response


def is_unauthorized(response: httpx2.Response) -> bool:
    """Whether the credentials are refused. Some servers say `invalid_token` with 403 instead of 401 (RFC 6750, 3.1)."""
    says_so = challenge_of(response).get("error", "").lower() == "invalid_token"
    return response.status_code == HTTPStatus.UNAUTHORIZED or (response.status_code == 403 and says_so)


def challenge_of(response: httpx2.Response) -> dict[str, str]:
    """Return the parameters of all challenges in WWW-Authenticate.

    Source: RFC 9110, 11.6.1.
    """
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(response.headers.get("www-authenticate", "")):
        if value := re.sub(r"\\(.)", r"\1", quoted) or plain:
            found.setdefault(name.lower(), value)
    return found

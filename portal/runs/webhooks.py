"""Webhooks: report changes of runs to the URLs of `runs.webhooks`.

Each message is sent at least once, under one id. Messages about one run are sent in order.

Source: Standard Webhooks 1.0.0, https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hmac
import json
import random
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import httpx2
import structlog

from manifests.constraints import HostPattern, canonical_host, is_address
from manifests.grants import NetworkGrant
from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.portal_manifest import Webhook
from portal.calls.fetch import Fetcher, FetchError, Network
from portal.records.store.records import StoreError
from portal.records.store.run_tables import Delivery, RunTables
from portal.records.store.writer import RunStore
from portal.runs.decisions import url_number
from portal.runs.service import Runs

log = structlog.get_logger()

REQUEST_SECONDS: Final = 10.0
MAX_RESPONSE_BYTES: Final = 64 * 1024
"""A longer response is a failure. Only its status counts."""

RETRY_SECONDS: Final = 5.0
LONGEST_RETRY_SECONDS: Final = 4 * 3_600.0
MAX_ATTEMPTS: Final = 14
"""The first retry comes after 5 s, each further one after three times as long, at most 4 h: about a day in total."""

TAKEN_SECONDS: Final = 2 * REQUEST_SECONDS
"""A portal that has not sent a message within this time leaves it to others."""

AT_ONCE: Final = 8
"""Concurrent requests to one URL."""

_GONE: Final = 410


def signature(secret: str, message: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`. The key is the base64 after `whsec_`, or the bytes of any other text."""
    encoded = secret.removeprefix("whsec_")
    key = secret.encode() if encoded == secret else base64.b64decode(encoded)
    signed = hmac.digest(key, b"%b.%d.%b" % (message.encode(), timestamp, body), "sha256")
    return f"v1,{base64.b64encode(signed).decode()}"


def network_of(url: str, manifest: Manifest) -> Network:
    """The guard for one URL. A private address is allowed as for scripts, or if the URL names it, or localhost.

    Raises ValueError: the host is invalid.
    """
    parts, listed = httpx2.URL(url), manifest.portal.capabilities.network
    own = HostPattern(canonical_host(parts.raw_host.decode("ascii")), parts.port)
    is_local = is_address(own.host) or own.host == "localhost"
    grant = NetworkGrant(
        allow=(str(own),),
        private=(*([str(own)] if is_local else []), *(listed.private if listed else ())),
        seconds=REQUEST_SECONDS,
        response_bytes=MAX_RESPONSE_BYTES,
    )
    return Network(grant, partial(manifest.where, "capabilities", "network"), is_of_scripts=False)


@dataclass(frozen=True)
class Webhooks:
    """Sends the messages of a store. One URL does not delay another."""

    manifest: Manifest
    runs: Runs
    store: RunStore

    async def keep(self) -> None:
        async with anyio.create_task_group() as tasks:
            for webhook in {each.url: each for each in self.manifest.portal.runs.webhooks}.values():
                try:
                    network = network_of(webhook.url, self.manifest)
                except (ValueError, httpx2.InvalidURL) as error:
                    log.error("webhook_url_invalid", reason=type(error).__name__)
                else:
                    tasks.start_soon(self._keep_sending, webhook, network)

    async def _keep_sending(self, webhook: Webhook, network: Network) -> None:
        """Send due messages as they come, until cancelled."""
        pending = partial(RunTables.deliveries, hook=url_number(webhook.url), limit=AT_ONCE)
        while True:
            try:
                news, now = self.runs.changes.news, self.store.now()
                found = await self.store.read(pending)
                due = [delivery for delivery in found if delivery.next_at <= now]
                async with anyio.create_task_group() as tasks:
                    for delivery in due:
                        tasks.start_soon(self._send, webhook, network, delivery)
                if not due:
                    with anyio.move_on_after(found[0].next_at - now if found else None):
                        await news.wait()
            except* StoreError as errors:
                log.error("webhooks_not_sent", error=str(errors.exceptions[0]))
                await anyio.sleep(RETRY_SECONDS)

    async def _send(self, webhook: Webhook, network: Network, delivery: Delivery) -> None:
        take = partial(RunTables.take_delivery, delivery=delivery, until=self.store.now() + TAKEN_SECONDS)
        if not await self.store.write(take):
            return  # another portal sends it
        attempt, reason = delivery.attempt + 1, ""
        try:
            status = await _post(webhook, network, delivery)
        except FetchError as error:
            status, reason = 0, error.call_error.message
        seconds = retry_seconds(status, attempt)
        host = httpx2.URL(webhook.url).host  # its path may be a secret
        told = {"id": delivery.id, "host": host, "status": status, "reason": reason, "attempt": attempt}
        if 200 <= status < 300:
            log.info("webhook_sent", **told, last=True)
        else:
            log.warning("webhook_failed", **told, last=seconds is None)
        note = partial(RunTables.end_delivery, delivery=delivery.id)
        if seconds is not None:
            next_at = self.store.now() + seconds * random.uniform(0.9, 1.1)
            note = partial(RunTables.postpone, delivery=delivery.id, attempt=attempt, next_at=next_at)
        await self.store.write(note)


async def _post(webhook: Webhook, network: Network, delivery: Delivery) -> int:
    """Post a message and return the status of the response. Raises FetchError: there is no response."""
    now, secret = int(time.time()), webhook.secret.get_secret_value()
    headers: list[Json] = [
        ["content-type", "application/json"],
        ["webhook-id", delivery.id],
        ["webhook-timestamp", str(now)],
        ["webhook-signature", signature(secret, delivery.id, now, delivery.body)],
    ]
    body = base64.b64encode(delivery.body).decode()
    sent = {"url": webhook.url, "method": "POST", "headers": headers, "body": body, "follow_redirects": False}
    return int(json.loads(await Fetcher(network).fetch(sent, lambda: None))["status"])


def retry_seconds(status: int, attempt: int) -> float | None:
    """How long to wait after an attempt with this status, 0 without a response. None: the message is sent no more."""
    if 200 <= status < 300 or status == _GONE or attempt >= MAX_ATTEMPTS:
        return None
    return min(RETRY_SECONDS * 3.0 ** (attempt - 1), LONGEST_RETRY_SECONDS)

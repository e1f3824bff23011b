"""Webhooks: signed, at least once, in order for each run, and only to where they may go."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response
from structlog.testing import capture_logs

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.identity.approvers import Decider
from portal.records.store.run_tables import RunTables
from portal.runs import webhooks
from portal.runs.webhooks import MAX_ATTEMPTS, network_of, retry_seconds, signature
from tests.portal.kept_runs import KeptRuns, kept_runs
from tests.portal.peers import DEADLINE_SECONDS, write_manifest
from tests.ports import closed_port
from tests.upstreams.peers import http_peer

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class Receiver:
    """A server that gets webhooks. It answers each of `statuses` once, then 204."""

    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)
    url: str = ""

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        self.requests.append((dict(request.headers), await request.body()))
        self.changed.set()
        self.changed = anyio.Event()
        status = self.statuses.pop(0) if self.statuses else 204
        if status == 0:
            await anyio.sleep_forever()
        headers = {"location": self.url} if 300 <= status < 400 else {}
        await Response(status_code=status, headers=headers)(scope, receive, send)

    async def until(self, count: int) -> list[str]:
        """The types of the messages, once there are this many requests."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(self.requests) < count:
                await self.changed.wait()
        return [json.loads(body)["type"] for _, body in self.requests]

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.requests]


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncIterator[Receiver]:
    receiver = Receiver([*statuses])
    async with http_peer(receiver) as peer:
        receiver.url = f"http://127.0.0.1:{peer.port}/hook"
        yield receiver


def to(*receivers: Receiver | str, **more: Json) -> list[Json]:
    """The entries of `runs.webhooks`."""
    urls = [each if isinstance(each, str) else each.url for each in receivers]
    return [{"url": url, "secret": SECRET, **more} for url in urls]


async def pending(kept: KeptRuns, url: str) -> int:
    found = partial(RunTables.deliveries, hook=webhooks.url_number(url), limit=100)
    return len(await kept.store.read(found))


def test_signature_is_that_of_the_standard() -> None:
    body, message = b'{"test": 2432232314}', "msg_p5jXN8AQM9LWM0D4loKWxJek"
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature(SECRET, message, 1614265330, body) == expected
    assert signature("any other text", message, 1614265330, body) != expected


def test_message_is_sent_again_for_a_day_unless_it_arrived_or_its_receiver_is_gone() -> None:
    for over in (200, 204, 299, 410):
        assert retry_seconds(over, 1) is None
    for failed in (0, 302, 404, 429, 500):  # 0: without an answer in time
        seconds = [retry_seconds(failed, attempt) for attempt in range(1, MAX_ATTEMPTS + 1)]
        assert (seconds[:3], seconds[-1]) == ([5, 15, 45], None)
        assert 21 < sum(filter(None, seconds)) / 3600 < 28


async def test_waiting_run_and_its_end_are_told_in_order_and_signed(tmp_path: Path) -> None:
    own = "https://portal.example/"
    async with receiving() as receiver, kept_runs(tmp_path, webhooks=to(receiver), public_url=own) as kept:
        run = await kept.start("ask")
        await receiver.until(1)
        await kept.runs.decide(run, 1, Decider("http"), is_approved=True)
        assert await receiver.until(2) == ["run.waiting", "run.ok"]
        for headers, body in receiver.requests:
            timestamp = int(headers["webhook-timestamp"])
            signed = signature(SECRET, headers["webhook-id"], timestamp, body)
            assert headers["webhook-signature"] == signed
            assert abs(timestamp - time.time()) < DEADLINE_SECONDS
            assert json.loads(body)["data"]["run_id"] == run
        asked, ended = (json.loads(body)["data"] for _, body in receiver.requests)
        assert [(each["seq"], each["asked"]["arguments"]) for each in asked["waiting"]] == [(1, {"pull": 7})]
        assert (asked["url"], ended.get("url")) == (f"{own}ui/approvals#{run[:12]}-1", None)


async def test_only_the_wanted_events_are_told(tmp_path: Path) -> None:
    async with (
        receiving() as receiver,
        kept_runs(tmp_path, webhooks=to(receiver, events=["run.cancelled"])) as kept,
    ):
        await kept.until(await kept.start("ok"), "ok")
        await kept.runs.cancel(await kept.start("hang"), None)
        assert await receiver.until(1) == ["run.cancelled"]
        assert await pending(kept, receiver.url) <= 1


async def test_message_is_sent_again_under_its_id_and_before_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "RETRY_SECONDS", 0.001)
    # The clock of each machine may differ: that of the store counts.
    monkeypatch.setattr(time, "time_ns", count(time.time_ns(), -(10**9)).__next__)
    failures = 500, 404, 302, 429
    with capture_logs() as logs:
        async with receiving(*failures) as receiver, kept_runs(tmp_path, webhooks=to(receiver)) as kept:
            run = await kept.start("ask")
            await kept.until(run, "waiting")
            await kept.runs.decide(run, 1, Decider("http"), is_approved=True)
            assert await receiver.until(6) == [*["run.waiting"] * 5, "run.ok"]
            first, *again, last = receiver.ids()
            assert again == [first] * 4 and last != first
    told = [(each["event"], each["log_level"], each["status"]) for each in logs if "attempt" in each]
    failed = [("webhook_failed", "warning", status) for status in failures]
    assert told[:5] == [*failed, ("webhook_sent", "info", 204)]
    assert {each["host"] for each in logs if "attempt" in each} == {"127.0.0.1"}


async def test_receiver_that_hangs_or_is_down_delays_no_other(tmp_path: Path) -> None:
    down = f"http://127.0.0.1:{closed_port()}/hook"
    async with (
        receiving(*[0] * 8) as hanging,
        receiving() as receiver,
        kept_runs(tmp_path, webhooks=to(down, hanging, receiver)) as kept,
    ):
        for _ in range(3):
            await kept.start("ok")
        assert await receiver.until(3) == ["run.ok"] * 3


async def test_next_portal_sends_what_the_last_one_did_not_and_to_no_other_url(tmp_path: Path) -> None:
    async with receiving() as old, receiving() as new:
        async with kept_runs(tmp_path, webhooks=to(old), sends=False) as kept:
            await kept.until(await kept.start("ok"), "ok")
            assert await pending(kept, old.url) == 1
        async with kept_runs(tmp_path, webhooks=to(new)) as kept:
            second = await kept.start("ok")
            await new.until(1)
            assert json.loads(new.requests[0][1])["data"]["run_id"] == second
            assert old.requests == []
        async with kept_runs(tmp_path, webhooks=to(old)):
            assert await old.until(1) == ["run.ok"]


async def test_message_is_written_with_the_state_or_not_at_all(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}/hook"
    async with kept_runs(tmp_path, webhooks=to(url)) as kept:
        run = await kept.start("hang")

        def fail(file: RunTables) -> None:
            file.finish(run, "cancelled", None)
            raise ValueError("in the middle")

        with pytest.raises(ValueError, match="middle"):
            await kept.store.write(fail)
        assert await pending(kept, url) == 0
        await kept.runs.cancel(run, None)
        assert await pending(kept, url) == 1


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://hooks.example/in", []),
        ("http://localhost:8080/in", ["localhost:8080"]),
        ("https://10.0.0.7/in", ["10.0.0.7"]),
        ("http://[::1]:8080/in", ["[::1]:8080"]),
    ],
)
def test_private_address_is_reached_only_if_it_is_written_or_listed(
    tmp_path: Path, url: str, own: list[str]
) -> None:
    network: Json = {"network": {"private": ["listed.example"]}}
    grant = network_of(url, load_manifest(write_manifest(tmp_path, {}, capabilities=network), {})).grant
    assert [*map(str, grant.private)] == [*own, "listed.example"]
    assert grant.seconds == webhooks.REQUEST_SECONDS, "a request without an answer ends"

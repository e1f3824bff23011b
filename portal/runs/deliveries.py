"""The messages of webhooks, written with each change of a run."""

import hashlib
import secrets
import time
from collections.abc import Sequence

from manifests.portal_manifest import Webhook
from portal.records.store.run_tables import Delivery, RunTables
from portal.runs.decisions import iso, run_view, waiting_view
from sandbox_runtime.guest_json import encode


def add_messages(tables: RunTables, run: str, state: str, webhooks: Sequence[Webhook]) -> None:
    """Write a message for each webhook that wants this change of a run's state. A portal sends it."""
    event = "run.error" if state == "refused" else f"run.{state}"
    wanting = [webhook for webhook in webhooks if event in webhook.events]
    row = tables.row(run) if wanting else None
    if row is None:
        return
    data = run_view(row, tables.caller(row.owner))
    if state == "waiting":
        data["waiting"] = waiting_view(tables.calls(run, "state = 'waiting'"))
        if not data["waiting"]:
            return  # everything is decided, so the run resumes at once
    body = encode({"type": event, "timestamp": iso(row.updated), "data": data})
    for webhook in wanting:
        message = f"msg_{time.time_ns():016x}{secrets.token_hex(8)}"  # sorts by time
        tables.add_delivery(Delivery(message, run, url_number(webhook.url), body, 0, tables.now()))


def url_number(url: str) -> int:
    """The number that identifies a URL in the store. Its messages go to no other URL, however the manifest changes."""
    return int.from_bytes(hashlib.sha256(url.encode()).digest()[:6])

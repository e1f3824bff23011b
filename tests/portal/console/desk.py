"""A store with runs that ask, and the console through which a person decides."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from httpx2 import Response
from starlette.requests import Request
from starlette.testclient import TestClient

from manifests.json_value import Json
from portal.base.caller import Bearer
from portal.console.app import console_app
from portal.console.source import LeftSource
from portal.console.visitor import Visitor
from portal.identity.approvers import Approvers, Decider
from portal.records.ledger import MAX_ROWS
from portal.records.store.records import CallRow, RunRow
from portal.records.store.run_tables import RunTables
from portal.records.store.trail import TrailRow
from portal.runs.shown_calls import sha256_of
from tests.portal.rows import begun, opened

BASE = "/ui/@left"
REFUND: Json = {"charge": "ch_1", "amount": 1290.0, "urgent": False}


class RuledSource(LeftSource):
    """The store of a portal with these rules about deciding."""

    rules = Approvers()

    @property
    def approvers(self) -> Approvers:
        return self.rules


def bearer(owner: str, entry: str = "") -> Decider:
    """Somebody who has signed in."""
    return Decider(f"console {owner}", owner, Bearer(owner, None, run_owner=owner, entry=entry))


@dataclass
class Desk:
    source: RuledSource
    tables: RunTables
    client: TestClient
    visitor: list[Visitor] = field(default_factory=lambda: [Visitor(Decider("console ann"), may_decide=True)])
    """The one who asks for pages."""

    def asks(
        self,
        *arguments: Json,
        function: str = "billing.refund",
        before: tuple[str, ...] = (),
        code: str = "1",
        owner: str = "local",
        **more: Json,
    ) -> RunRow:
        """A run that has made the calls `before`, and waits for one call with each of these arguments."""
        run = begun(self.tables, code, owner=owner)
        made = [[n, each, "done", 0.0, 1.0, ""] for n, each in enumerate(before[:MAX_ROWS], 1)]
        trail = TrailRow(run.id, owner, "waiting", code, run.began, ms=2.0, is_journaled=True)
        calls = []
        for n, each in enumerate(arguments, len(before) + 1):
            shown = {"function": function, "arguments": each, "rule": f"ask: {function}", **more}
            digest = sha256_of(each) if isinstance(each, dict) else ""
            text = json.dumps(shown).encode()
            calls.append(CallRow(run.id, n, "ask", function, "waiting", "digest", digest, shown=text))
        with self.tables.transaction():
            self.tables.advance(run.id, run.epoch, calls=calls)
            self.tables.add_trail([replace(trail, calls=len(before) + len(calls), listed=made)], {})
            self.tables.park(run.id, run.epoch, [call.seq for call in calls])
        return run

    def page(self, path: str = "/approvals", **headers: str) -> Response:
        return self.client.get(f"{BASE}{path}", headers=headers)

    def answer(self, run: RunRow, seq: int | None = 1, /, is_htmx: bool = False, **fields: Any) -> Response:
        """Send the form about one call, or about several. A redirect is not followed."""
        path = f"{BASE}/runs/{run.id}/answers" + ("" if seq is None else f"/{seq}")
        headers = {"HX-Request": "true"} if is_htmx else {}
        return self.client.post(path, data=fields, headers=headers, follow_redirects=False)

    def approve(self, run: RunRow, seq: int = 1, **fields: Any) -> Response:
        return self.answer(run, seq, decision="approve", **fields)

    def call(self, run: RunRow, seq: int = 1) -> CallRow:
        call = self.tables.call(run.id, seq)
        assert call is not None
        return call

    def states(self, run: RunRow) -> list[str]:
        return [call.state for call in self.tables.calls(run.id)]

    def arguments(self, run: RunRow, seq: int = 1) -> Json:
        """Those that a person wrote."""
        return json.loads(self.call(run, seq).decision or b"{}").get("arguments")


@contextmanager
def desk_in(folder: Path) -> Iterator[Desk]:
    tables = opened(folder)
    source = RuledSource(folder / "runs.sqlite", None, BASE, "left")
    visitors: list[Visitor] = []

    async def admit(request: Request) -> Visitor:
        return visitors[0]

    with TestClient(console_app(source, admit)) as client:
        desk = Desk(source, tables, client)
        visitors = desk.visitor
        yield desk
    tables.close()

"""Runs in a store, told step by step by a clock that the test sets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from manifests.grants import Limits
from manifests.json_value import Json
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.identity.approvers import Approvers, Decider
from portal.records.ledger import CallState
from portal.records.store.records import CallKind, CallRow, RunState
from portal.records.store.run_tables import RunTables
from portal.records.store.trail import TrailRow
from portal.runs.answer import Answer
from portal.runs.decisions import decide_call
from portal.runs.past import HEAD, EntryRow, RunHead, dump_chunk, dump_outcome, new_row, new_run_id
from sandbox_runtime.call_port import CallError, Outcome
from sandbox_runtime.frames import SEED_BYTES
from sandbox_runtime.guest_json import encode
from sandbox_runtime.recording import Event, Origin, Record
from tests.portal.rows import opened

BEGAN = 1_795_000_000.0
HOUR = 3_600.0


class Story:
    """One run of `code`, at `at` seconds since 1970."""

    def __init__(self, folder: Path, code: str, owner: str = "local") -> None:
        self.tables: RunTables = opened(folder)
        self.at, self.seq, self.chunks = BEGAN, 0, 0
        self.tables.now = lambda: self.at
        self.tables.holder = "first"
        origin = Origin("0" * 64, bytes(SEED_BYTES), int(BEGAN * 1000), 1, 0)
        record = Record(origin, code, (), Limits(), 1 << 20, None, ())
        head = RunHead(ExecuteCode(code), LOCAL, None, record, began=BEGAN)
        row = new_row(new_run_id(), owner, head, None, 30.0)
        self.run, self.epoch = row.id, row.epoch
        self._write(lambda: self.tables.create(row, HEAD.dump_json(head)))

    def later(self, seconds: float) -> "Story":
        """So much time passes."""
        self.at += seconds
        return self

    def call(
        self,
        function: str,
        arguments: Json = None,
        value: Json = None,
        *,
        seconds: float = 0.0,
        state: CallState = "done",
        error: CallError | None = None,
    ) -> "Story":
        """The script makes a call, which takes so long."""
        began, self.seq = self.at, self.seq + 1
        self.at += seconds
        self._note(function, began, state, error, arguments, value)
        return self

    def asks(self, function: str, arguments: Json = None, kind: CallKind = "ask") -> "Story":
        """The script makes a call that waits, and its run is suspended."""
        self.seq += 1
        shown = {"arguments": arguments, "rule": "capabilities.tools.ask", "where": "portal.yaml:3:5"}
        row = CallRow(
            self.run, self.seq, kind, function, "waiting", shown=encode(shown), due_at=self.at + 14 * HOUR
        )
        self._note(function, self.at, "not_started", None, arguments, None, calls=[row])
        self._write(lambda: self.tables.park(self.run, self.epoch, self._waiting()))
        return self

    def decided(self, **more: Any) -> "Story":
        decider = Decider("console alice")
        self._write(
            lambda: decide_call(
                self.tables, self.run, self.seq, decider, Approvers(), is_approved=True, **more
            )
        )
        return self

    def resumed(self, holder: str = "first") -> "Story":
        self.tables.holder = holder
        self._write(lambda: self.tables.claim(self.run))
        self.epoch += 1
        return self

    def sent(self, function: str) -> "Story":
        """The call that waited is sent."""
        row = CallRow(self.run, self.seq, "ask", function, "intended")
        self._write(lambda: self.tables.advance(self.run, self.epoch, calls=[row]))
        return self

    def answered(self, function: str, value: Json = None, state: CallState = "done", **error: Any) -> "Story":
        """The call that waited has its outcome."""
        outcome = Outcome(value, CallError(**error) if error else None)
        self._note(function, self.at, state, outcome.error, None, value)
        written = [(self.seq, dump_outcome(state, outcome))]
        self._write(lambda: self.tables.advance(self.run, self.epoch, outcomes=written))
        return self

    def ended(self, state: str = "ok", **answer: Any) -> "Story":
        told = Answer(state, self.run, **answer).dump()
        self._write(lambda: self.tables.finish(self.run, state, told, self.epoch))
        return self

    def _waiting(self) -> list[int]:
        return [call.seq for call in self.tables.calls(self.run) if call.state == "waiting"]

    def _note(
        self,
        function: str,
        began: float,
        state: str,
        error: Any,
        arguments: Json,
        value: Json,
        calls: Any = (),
    ) -> None:
        self.chunks += 1
        entry = EntryRow(self.seq, function, state, "", (self.at - began) * 1000, began, error, (), "")
        events = (
            []
            if arguments is None
            else [Event("sent", f"{self.seq} {function} {encode(arguments).decode()}")]
        )
        events += [] if value is None else [Event("answered", encode([[self.seq, 1, value]]).decode())]
        chunk = dump_chunk(tuple(events), (entry,))
        self._write(
            lambda: self.tables.advance(self.run, self.epoch, chunk=chunk, n=self.chunks, calls=[*calls])
        )

    def _write(self, work: Callable[[], object]) -> None:
        with self.tables.transaction():
            work()


def kept(
    tables: RunTables, n: int, title: str = "", state: RunState = "ok", *listed: list[Json], **more: Any
) -> str:
    """Add a run of the trail alone, which began `n` seconds after BEGAN and made the `listed` calls. Returns its id."""
    known = {"owner": "local", "client": "probe 1", "code": "", "calls": len(listed)} | more
    row = TrailRow(
        f"run_{n:032x}", state=state, title=title, began=BEGAN + n, ms=60.0, listed=listed, **known
    )
    with tables.transaction():
        tables.add_trail([row], {})
    return row.id


SCRIPT = """# Refund who was charged twice
found = await tickets.list(queue="billing")
await portal.sleep(50_400)
paid = await billing.refund(charge="ch_1")
await tickets.reply(id=7)
"""


def night(folder: Path) -> Story:
    """A run that sleeps for 14 hours, asks twice, and whose portal is killed while its last call is under way."""
    story = Story(folder, SCRIPT).later(0.1)
    story.call("tickets.list", {"queue": "billing"}, ["t1"], seconds=0.1).later(0.1)
    story.asks("portal.sleep", {"seconds": 50_400}, "sleep").later(14 * HOUR).resumed().later(0.1)
    story.answered("portal.sleep").later(0.05)
    story.asks("billing.refund", {"charge": "ch_1"}).later(1_200).decided(reason="fine").resumed()
    story.sent("billing.refund").later(0.1).answered("billing.refund", {"paid": True}).later(0.05)
    story.asks("tickets.reply", {"id": 7}).later(300).decided().resumed().sent("tickets.reply")
    story.later(240).resumed("second").later(0.1)
    return story.answered(
        "tickets.reply", state="unknown", code="outcome_unknown", message="it is unknown", hint=""
    )

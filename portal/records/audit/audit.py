"""Records runs and calls: who, which function, a digest of the arguments, the decision, the outcome.

Rule 1: a call is recorded before it can be sent. If that fails, only tools that declare that they only read are called.
Calls of those tools do not wait for a log in the database.
Rule 2: no event contains arguments, results, script text or secrets. Error messages may contain them. So a refusal is
recorded by its code and by the rule as the manifest states it.

With `to: store`, all portals that share a database write one chain there:

Rule 3: a line shares a transaction with the lines before it, and with other pending writes. So a call that waits for
its journal does not wait for another commit.
Rule 4: the chain continues after the last line; if the last line of this portal is gone, after that one. So `verify`
finds the gap.
"""

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from operator import attrgetter
from typing import Final

import anyio
from opentelemetry.metrics import Counter

from manifests.decision import Decision
from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.portal_manifest import STDERR, AuditSettings
from portal.base.caller import LOCAL, Caller
from portal.base.errors import AuditError, RuleError
from portal.records.audit.chain import START, FileSink, Head, Sink, StderrSink, linked, read_line
from portal.records.ledger import Entry, Ledger
from portal.records.store.tables import Tables
from portal.records.store.writer import RunStore
from portal.records.telemetry import instruments
from portal.records.telemetry.instruments import NO_TELEMETRY
from sandbox_runtime.call_port import CallError

MAX_REFUSALS: Final = 1_000
"""Refused calls of one run that get their own line; the line that ends the run counts the others."""

MAX_CHARACTERS: Final = 500
"""Rules, function names and callers are cut to this length. A person's subject, tenant and profile fit."""

_LOCK: Final = "audit", "", "lock"


class Audit:
    """The audit log of one portal. Without a sink nothing is written and nothing fails."""

    def __init__(self, sink: Sink | None, refusals: Counter = NO_TELEMETRY.refusals) -> None:
        """`refusals` counts the calls that are not sent, whether or not there is a log."""
        self.sink = sink
        self._refusals = refusals

    @property
    def batch(self) -> "Batch | None":
        """The batch with the last line, to wait for; None if it is already written, or never will be."""
        return self.sink.batch if isinstance(self.sink, StoreSink) else None

    def run(self, run_id: str, caller: Caller, profile: str | None) -> "RunAudit":
        return RunAudit(self, run_id, caller, profile)

    def note(self, event: str, **fields: Json) -> bool:
        """Write an event. Returns whether it was written, or will be.

        The first failure in a row is logged. The next line that is written says how many events were lost.
        """
        if self.sink is None:
            return True
        try:
            if self.sink.lost:
                self.sink.append(_stamped("audit_resumed", lost=self.sink.lost))
                self.sink.lost = 0
            self.sink.append(_stamped(event, **fields))
        except (OSError, ValueError, AuditError) as error:
            self.sink.lose(1, error)
            return False
        return True

    def count_refusal(self, error: CallError) -> None:
        rule = {instruments.RULE: error.rule} if isinstance(error, RuleError) else {}
        self._refusals.add(1, {instruments.ERROR: error.code, **rule})

    def reloaded(self, manifest: Manifest) -> None:
        self.note("manifest_reloaded", manifest=_file_digest(manifest))

    def close(self) -> None:
        if self.sink is not None:
            self.note("portal_stopped")
            self.sink.close()


async def open_audit(
    manifest: Manifest, store: RunStore | None = None, refusals: Counter = NO_TELEMETRY.refusals
) -> Audit:
    """Open the log that the manifest configures: in the store, in a file, or on stderr.

    Raises AuditError: it cannot be written.
    """
    settings = manifest.portal.audit
    if settings is None:
        return Audit(None, refusals)
    audit = Audit(_sink(settings, manifest, store), refusals)
    is_written = audit.note(
        "portal_started", version=version("mcp-code-portal"), manifest=_file_digest(manifest)
    )
    if not is_written or (audit.batch is not None and not await audit.batch.written()):
        raise AuditError(f"the audit log cannot be written ({manifest.where('audit', 'to')})")
    return audit


def _sink(settings: AuditSettings, manifest: Manifest, store: RunStore | None) -> Sink:
    if settings.is_file:
        return FileSink(manifest.folder / settings.to, is_durable=settings.sync)
    if settings.to == STDERR:
        return StderrSink()
    assert store is not None, "the manifest names a store"
    return StoreSink(store)


@dataclass(eq=False)
class RunAudit:
    """Writes the events of one run."""

    audit: Audit
    run_id: str
    caller: Caller
    profile: str | None
    _refused: int = 0

    def began(self, code: str, *, is_resumed: bool = False, **more: Json) -> None:
        """Record a submitted script, or that its run resumes. The line that ends the run says whether it ran."""
        if self.audit.sink is None:
            return
        event = "run_resumed" if is_resumed else "run_began"
        script = hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
        self.audit.note(event, run=self.run_id, **self._who(), script=script, **more)

    def reading(self, function: str) -> None:
        """Record a client's request for resources or prompts. The lines of the calls that it makes follow."""
        self.audit.note("read_began", run=self.run_id, **self._who(), function=_cut(function))

    def _who(self) -> dict[str, Json]:
        return {"who": _cut(self.caller.label), "profile": self.profile}

    def ended(self, status: str, code: str, ledger: Ledger) -> None:
        more = {"more_refused": self._refused - MAX_REFUSALS} if self._refused > MAX_REFUSALS else {}
        if not_started := ledger.count("not_started"):
            more["not_started"] = not_started
        self.audit.note("run_ended", run=self.run_id, status=status, code=code, calls=ledger.calls, **more)

    def allowed(self, seq: int, function: str, decision: Decision, arguments: Mapping[str, Json]) -> bool:
        """Record that a call is about to be sent. Returns whether it was recorded, will be, or need not be."""
        if self.audit.sink is None:
            return True
        # The run id salts the digest: equal arguments of two runs differ, and guesses cannot be precomputed.
        text = json.dumps([self.run_id, arguments], sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        rule = {"decision": "allow", "rule": _cut(decision.rule), "where": _cut(decision.where)}
        return self._call("call_decided", seq, function, arguments=digest, **rule)

    def refused(self, seq: int, function: str | None, error: CallError) -> None:
        """Record a call that is not sent. `function` is None if it does not exist: the script made up its name."""
        self._refused += 1
        self.audit.count_refusal(error)
        if self._refused <= MAX_REFUSALS:
            self._refusal(seq, function, error)

    def decided(self, seq: int, function: str, state: str, by: str, decision: Mapping[str, Json]) -> None:
        """Record that a person approved or denied a call, possibly `through` an approval of an earlier one."""
        more = {key: decision[key] for key in ("through", "stands") if key in decision}
        self._call(f"call_{state}", seq, function, by=_cut(by), **more)

    def outcome(self, entry: Entry) -> None:
        """Record the outcome of an allowed call; `unknown` if its run ended before its answer came.

        A call that was refused after all always gets a `call_refused` line, even beyond MAX_REFUSALS. Without that
        line it would look as if it may have happened.
        """
        function = entry.request or entry.function
        if entry.state == "refused" and entry.error is not None:
            self.audit.count_refusal(entry.error)
            self._refusal(entry.seq, function, entry.error)
            return
        if self.audit.sink is not None:
            ms = None if entry.ended is None else round((entry.ended - entry.began) * 1000, 1)
            code = entry.error.code if entry.error else None
            self._call("call_ended", entry.seq, function, state=entry.state, code=code, ms=ms)

    def _refusal(self, seq: int, function: str | None, error: CallError) -> None:
        rule: dict[str, Json] = {}
        if isinstance(error, RuleError):
            rule = {"rule": _cut(error.rule), "where": _cut(error.where)}
        self._call("call_refused", seq, function, decision="deny", code=error.code, **rule)

    def _call(self, event: str, seq: int, function: str | None, **fields: Json) -> bool:
        named = None if function is None else _cut(function)
        return self.audit.note(event, run=self.run_id, call=seq, function=named, **fields)


NO_AUDIT: Final = Audit(None)
NO_RUN_AUDIT: Final = NO_AUDIT.run("", LOCAL, None)
"""Writes nothing."""


def unrecorded(function: str) -> CallError:
    """The error of a call that cannot be recorded, unless its tool declares that it only reads."""
    return CallError(
        "audit_failed",
        f"{function[:MAX_CHARACTERS]} was not called: the call cannot be written to the audit log",
        "Nothing was sent. Until the log can be written, only tools that declare that they only read are called.",
    )


def _stamped(event: str, **fields: Json) -> dict[str, Json]:
    return {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}


def _cut(text: str) -> str:
    return text[:MAX_CHARACTERS]


def _file_digest(manifest: Manifest) -> str | None:
    return manifest.hashes.get(manifest.path.name) if manifest.path else None


@dataclass(eq=False)
class Batch:
    """Events that one transaction writes. Further events join until it begins."""

    events: list[dict[str, Json]] = field(default_factory=list)
    has_begun: bool = False
    is_written: bool = False
    head: Head = START
    """The head of its last line."""
    ended: anyio.Event = field(default_factory=anyio.Event)

    async def written(self) -> bool:
        """Wait for the transaction. Returns whether the events are in the log."""
        await self.ended.wait()
        return self.is_written


class StoreSink(Sink):
    """Writes events without waiting for the database. `batch` holds the last one, and its `written` waits for it.

    It has nothing to close: the store writes what waits before it closes.
    """

    def __init__(self, store: RunStore) -> None:
        self.batch = Batch(has_begun=True)
        self._store = store
        self._known = START
        """The last line that this portal wrote."""
        self._joining = threading.Lock()
        """Batches begin in the store's thread, while the event loop adds to them."""

    def append(self, event: Mapping[str, Json]) -> None:
        with self._joining:
            batch = Batch() if (is_new := self.batch.has_begun) else self.batch
            batch.events.append({**event, "replica": self._store.holder})
        if is_new:
            self.batch = batch
            self._store.submit(partial(self._write, batch), partial(self._end, batch), is_last=True)

    def _write(self, batch: Batch, tables: Tables) -> None:
        with self._joining:
            batch.has_begun = True
        tables.lock(*_LOCK)
        head, rows = max(_last(tables), self._known, key=attrgetter("seq")), []
        for event in batch.events:
            line, head = linked(head, event)
            rows.append((head.seq, line.decode().rstrip("\n")))
        tables.add_audit_lines(rows)
        batch.head = head

    def _end(self, batch: Batch, _: None, error: Exception | None) -> None:
        with self._joining:
            batch.has_begun = True  # without a connection its work never ran
        batch.is_written = error is None
        batch.ended.set()
        if error is None:
            self._known = batch.head
        else:
            # The line that counts lost events may be lost itself.
            self.lose(sum(int(str(event.get("lost", 1))) for event in batch.events), error)


def _last(tables: Tables) -> Head:
    """Raises AuditError: the last line is not an audit line."""
    found = tables.last_audit_line()
    if found is None:
        return START
    seq, line = found
    read = read_line(line.encode())
    if read is None or read.head.seq != seq:
        raise AuditError(
            f"line {seq} of the audit log in the database was altered, so that none can follow it"
        )
    return read.head

"""What is written down of runs and calls: who, what function, a digest of the arguments, the decision, the outcome.

Rule 1: a call is written down before it can be sent. If that fails, a tool that does not declare that it only reads
is not called.
Rule 2: no argument, no result, no text of a script, and no secret is in any event. Messages of errors have such in
them: of a refusal only its code, and the rule in the manifest's own words, are written.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

import structlog

from manifests.decision import Decision
from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.audit.chain import FileSink, Sink, StderrSink
from portal.errors import AuditError, RuleError
from portal.ledger import Entry, Ledger
from portal.sessions import LOCAL, Caller
from sandbox_runtime.calls import CallError

log = structlog.get_logger()

MAX_REFUSALS: Final = 1_000
"""Refused calls of one run with a line of their own; more are counted in the line that ends the run."""

MAX_CHARACTERS: Final = 300
"""Of a rule, a function's name or a caller no more is written."""

STDERR: Final = "stderr"


class Audit:
    """The log of one portal, or of none: without a sink nothing is written and nothing fails."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self._lost = 0

    @property
    def is_kept(self) -> bool:
        return self._sink is not None

    def run(self, run_id: str, caller: Caller, profile: str | None) -> "RunAudit":
        return RunAudit(self, run_id, caller, profile)

    def note(self, event: str, **fields: Json) -> bool:
        """Write an event; whether it is written.

        A failure is logged once, until a line is written again, and that one says how many were not.
        """
        if self._sink is None:
            return True
        try:
            if self._lost:
                self._sink.append(_stamped("audit_resumed", lost=self._lost))
                self._lost = 0
            self._sink.append(_stamped(event, **fields))
        except (OSError, ValueError, AuditError) as error:
            if not self._lost:
                log.error("audit_failed", reason=getattr(error, "strerror", None) or str(error))
            self._lost += 1
            return False
        return True

    def close(self) -> None:
        if self._sink is not None:
            self.note("portal_stopped")
            self._sink.close()


def open_audit(manifest: Manifest) -> Audit:
    """The log that the manifest asks for. Raises AuditError: it cannot be written to."""
    settings = manifest.portal.audit
    if settings is None:
        return NO_AUDIT
    sink: Sink = StderrSink()
    if settings.to != STDERR:
        sink = FileSink(manifest.folder / settings.to, is_durable=settings.sync)
    audit = Audit(sink)
    if not audit.note("portal_started", version=version("mcp-code-portal"), manifest=_file_digest(manifest)):
        sink.close()
        raise AuditError(f"the audit log cannot be written ({manifest.where('audit', 'to')})")
    return audit


@dataclass(eq=False)
class RunAudit:
    """What is written of one run."""

    audit: Audit
    run_id: str
    caller: Caller
    profile: str | None
    _refused: int = 0

    def began(self, code: str) -> None:
        """A script was handed in; whether it runs is in the line that ends the run."""
        if self.audit.is_kept:
            script = hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
            self.audit.note("run_began", run=self.run_id, **self._who(), script=script)

    def reading(self, function: str) -> None:
        """A client asked for what upstreams offer besides tools; the lines of the request's calls follow."""
        self.audit.note("read_began", run=self.run_id, **self._who(), function=_cut(function))

    def _who(self) -> dict[str, Json]:
        return {"who": _named(self.caller), "profile": self.profile}

    def ended(self, status: str, code: str, ledger: Ledger) -> None:
        more = {"more_refused": self._refused - MAX_REFUSALS} if self._refused > MAX_REFUSALS else {}
        if not_started := ledger.count("not_started"):
            more["not_started"] = not_started
        self.audit.note("run_ended", run=self.run_id, status=status, code=code, calls=ledger.calls, **more)

    def allowed(self, seq: int, function: str, decision: Decision, arguments: Mapping[str, Json]) -> bool:
        """A call is to be sent; whether that is written, or need not be."""
        if not self.audit.is_kept:
            return True
        # With the run in it, so that equal arguments of two runs, or of a list of guesses made before, are not.
        text = json.dumps([self.run_id, arguments], sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        rule = {"decision": "allow", "rule": _cut(decision.rule), "where": _cut(decision.where)}
        return self._call("call_decided", seq, function, arguments=digest, **rule)

    def refused(self, seq: int, function: str | None, error: CallError) -> None:
        """A call is not sent. `function` is None where there is no such: its name is what the script wrote."""
        self._refused += 1
        if self.audit.is_kept and self._refused <= MAX_REFUSALS:
            self._refusal(seq, function, error)

    def outcome(self, entry: Entry) -> None:
        """What became of a call that was allowed; `unknown` if its run ended before its answer came.

        One that was refused after all has the line of a refused call, whatever number of those there is already:
        without it, it would look like one that may have happened.
        """
        if not self.audit.is_kept:
            return
        if entry.state == "refused" and entry.error is not None:
            self._refusal(entry.seq, entry.request or entry.function, entry.error)
            return
        ms = None if entry.ended is None else round((entry.ended - entry.began) * 1000, 1)
        code = entry.error.code if entry.error else None
        self._call(
            "call_ended", entry.seq, entry.request or entry.function, state=entry.state, code=code, ms=ms
        )

    def _refusal(self, seq: int, function: str | None, error: CallError) -> None:
        rule: dict[str, Json] = {}
        if isinstance(error, RuleError):
            rule = {"rule": _cut(error.rule), "where": _cut(error.where)}
        self._call("call_refused", seq, function, decision="deny", code=error.code, **rule)

    def _call(self, event: str, seq: int, function: str | None, **fields: Json) -> bool:
        named = None if function is None else _cut(function)
        return self.audit.note(event, run=self.run_id, call=seq, function=named, **fields)


NO_AUDIT: Final = Audit(None)
UNHEARD: Final = NO_AUDIT.run("", LOCAL, None)
"""What writes nothing."""


def unrecorded(function: str) -> CallError:
    """Why a call that is not written down is not made, unless its tool declares that it only reads."""
    return CallError(
        "audit_failed",
        f"{function[:MAX_CHARACTERS]} was not called: the call cannot be written to the audit log",
        "Nothing was sent. Only tools that declare that they only read are called until the log can be written.",
    )


def _stamped(event: str, **fields: Json) -> dict[str, Json]:
    return {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}


def _named(caller: Caller) -> str:
    """Who asks. The id of an MCP session lets whoever knows it join: of that only a hash is written."""
    before, session, identifier = caller.share.partition("session ")
    if not session:
        return _cut(caller.share)
    return _cut(f"{before}{session}{hashlib.sha256(identifier.encode()).hexdigest()[:16]}")


def _cut(text: str) -> str:
    return text[:MAX_CHARACTERS]


def _file_digest(manifest: Manifest) -> str | None:
    try:
        return hashlib.sha256(manifest.path.read_bytes()).hexdigest() if manifest.path else None
    except OSError:
        return None

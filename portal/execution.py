"""`execute_code`: runs a script and returns its answer."""

import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

import anyio
import structlog

from manifests.grants import Limits
from manifests.json_value import Json
from portal.audit.audit import Audit, RunAudit
from portal.authority import Authority, Authorization
from portal.broker import Broker
from portal.check.checker import Checker, Diagnostic
from portal.definitions import ExecuteCode
from portal.errors import NO_UPSTREAMS
from portal.ledger import Ledger
from portal.library.catalog import Catalog
from portal.library.observed import Observations
from portal.library.snapshot import Snapshot
from portal.middleware import Middleware
from portal.passthrough.notifications import NO_CLIENT, ClientChannel
from portal.sessions import LOCAL, Caller, SessionError, SessionHistory, Sessions
from sandbox_runtime.calls import CallPort
from sandbox_runtime.grants.run_grants import OpenGrants
from sandbox_runtime.result import Prepared, RunError, RunResult
from sandbox_runtime.run import Run
from sandbox_runtime.sandbox import Sandbox, Session
from upstreams.fleet import Fleet

Status: TypeAlias = Literal["ok", "error", "refused"]
"""ok: the script finished; error: it started and failed; refused: it did not run."""


@dataclass(frozen=True)
class Answer:
    """The result of one run, before it is truncated for the reader.

    `emitted` are the MCP content blocks that the script passed to `portal.emit`, in order.
    """

    status: Status
    run_id: str
    result: Json = None
    stdout: str = ""
    error: RunError | None = None
    calls: Sequence[dict[str, Json]] = ()
    notices: Sequence[str] = ()
    session: str | None = None
    emitted: Sequence[dict[str, Json]] = field(default=(), repr=False)

    def structured(self) -> dict[str, Json]:
        """The answer as JSON. `session` is present only if the run belongs to one."""
        error = None if self.error is None else asdict(self.error)
        if error is not None and not error["traceback"]:
            del error["traceback"]
        answer: dict[str, Json] = {
            "status": self.status,
            "result": self.result,
            "stdout": self.stdout,
            "error": error,
            "calls": list(self.calls),
            "notices": list(self.notices),
            "run_id": self.run_id,
        }
        if self.session is not None:
            answer["session"] = self.session
        return answer


log = structlog.get_logger()

_SEARCHING = re.compile(r"\bportal\b.*\b(?:search|describe)\b", re.DOTALL)
"""Matches scripts that call `portal.search` or `portal.describe`, and so may use any upstream."""

MAX_DIAGNOSTICS = 8
"""Findings listed in one refusal; more are counted."""


AwaitUpstreams: TypeAlias = Callable[[Fleet, Collection[str]], Awaitable[object]]
"""Waits until these upstreams have started, or their time to start is over."""


@dataclass(frozen=True)
class Execution:
    """Runs scripts against the catalog's current snapshot. `port` creates the call port of one run."""

    authority: Authority
    catalog: Catalog
    fleet: Fleet
    sandbox: Callable[[], Awaitable[Sandbox]]
    checker: Checker | None
    sessions: Sessions
    grants: OpenGrants
    observations: Observations
    port: Callable[[Broker], CallPort]
    audit: Audit
    middleware: Sequence[Middleware]
    await_upstreams: AwaitUpstreams
    _histories: "WeakKeyDictionary[Session, SessionHistory]" = field(default_factory=WeakKeyDictionary)

    async def run(
        self,
        request: ExecuteCode,
        caller: Caller = LOCAL,
        ledger: Ledger | None = None,
        channel: ClientChannel = NO_CLIENT,
    ) -> Answer:
        """Run one script. Failures of the script, its tools or its worker become part of the answer.

        `ledger` is filled during the run, so that after a cancellation the caller can read the calls and the output
        there. `channel` reports the current stage to the client.
        """
        ledger = ledger if ledger is not None else Ledger()
        ledger.run_id = f"run_{secrets.token_hex(8)}"
        audit = self.audit.run(ledger.run_id, caller, self.authority.manifest.profile)
        audit.began(request.code)
        status, code = "error", "internal_error"
        try:
            answer = await self._run(request, caller, ledger, channel, audit)
            status, code = answer.status, answer.error.code if answer.error else ""
            return answer
        except anyio.get_cancelled_exc_class():
            status, code = "cancelled", ""
            raise
        finally:
            audit.ended(status, code, ledger)

    async def _run(
        self, request: ExecuteCode, caller: Caller, ledger: Ledger, channel: ClientChannel, audit: RunAudit
    ) -> Answer:
        limits, notices = self._limits(request.timeout_seconds)
        if not self.authority.manifest.portal.upstreams:
            notices.append(NO_UPSTREAMS)
        channel.stage("waiting for a sandbox process")
        sandbox = await self.sandbox()
        try:
            async with self.sessions.use(sandbox, request.session, caller) as session:
                history = (
                    SessionHistory()
                    if session is None
                    else self._histories.setdefault(session, SessionHistory())
                )
                async with self.grants.run(session, caller.tenant) as grants:
                    ledger.files = grants.files
                    broker = Broker(
                        manifest=self.authority.manifest,
                        authorization=Authorization(self.authority, history.sources, audit),
                        snapshot=await self.catalog.fresh(),
                        fleet=self.fleet,
                        ledger=ledger,
                        observations=self.observations,
                        fetcher=grants.fetcher,
                        audit=audit,
                        channel=channel,
                        history=history,
                        middleware=self.middleware,
                    )
                    where, size = partial(self._where_of, limits), len(request.code)
                    async with sandbox.run(
                        limits, where, session, caller.queue_key, grants, script_bytes=size
                    ) as run:
                        answer = await self._run_in(run, request.code, broker)
                identifier = session.id if session is not None and session.alive else None
        except SessionError as error:
            return _refused(ledger, RunError(error.code, str(error), hint=error.hint))
        if request.session is not None and identifier is None:
            notices.append("the session ended with this run; its variables are lost")
        return replace(answer, notices=(*notices, *answer.notices), session=identifier)

    async def _run_in(self, run: Run, code: str, broker: Broker) -> Answer:
        ledger, stage = broker.ledger, broker.channel.stage
        prepared = await run.prepare(code, broker.snapshot.namespaces)
        if prepared.error is not None:
            return _refused(ledger, prepared.error, prepared.notices)
        stage("waiting for starting upstreams")
        await self._await_mentioned(broker.snapshot, prepared)
        stage("checking the script")
        async with self.catalog.steady() as snapshot:
            error, found = await self._check(prepared, snapshot)
        if error is not None:
            return _refused(ledger, error, prepared.notices)
        broker.snapshot = snapshot
        broker.history.record_namespaces(snapshot.library, prepared.names)
        stage("running the script")
        try:
            result = await run.execute(snapshot.table(prepared.names), self.port(broker), broker)
        except anyio.get_cancelled_exc_class():
            ledger.stdout = run.stdout
            raise
        error = result.error
        ms = round(result.wall_ms, 1)
        log.info("script_ran", run=ledger.run_id, error=error and error.code, calls=ledger.calls, ms=ms)
        return Answer(
            status="ok" if error is None else "error",
            run_id=ledger.run_id,
            result=result.value,
            stdout=result.stdout,
            error=None if error is None else with_effects(error, ledger),
            calls=ledger.rows(),
            notices=(
                *prepared.notices,
                *found,
                *broker.notices(),
                *result.notices,
                *self._stdout_notice(result),
            ),
            emitted=result.emitted,
        )

    async def _await_mentioned(self, snapshot: Snapshot, prepared: Prepared) -> None:
        """Wait until the upstreams that the script may use are in the library, or their time to start is over."""
        silent = snapshot.silent.keys()
        waited = silent if _SEARCHING.search(prepared.source) else silent & prepared.names
        if waited:
            keys = {
                key for key, namespace in self.authority.manifest.namespaces.items() if namespace in waited
            }
            await self.await_upstreams(self.fleet, keys)
            await self.catalog.fresh()

    async def _check(self, prepared: Prepared, snapshot: Snapshot) -> tuple[RunError | None, list[str]]:
        """Check the script. Returns an error if it is refused, else notices."""
        diagnostics = await self.checker.check(prepared, snapshot) if self.checker else ()
        refusing = [diagnostic for diagnostic in diagnostics if diagnostic.refuses]
        if refusing and self.authority.manifest.portal.server.check == "strict":
            return _check_error(refusing), []
        return None, [
            f"line {each.line}: {each.message}" + (f". {each.hint}" if each.hint else "")
            for each in diagnostics
        ]

    def _limits(self, timeout_seconds: float | None) -> tuple[Limits, list[str]]:
        limits = self.authority.manifest.portal.capabilities.limits
        if timeout_seconds is None:
            return limits, []
        if timeout_seconds > limits.wall_seconds:
            where = self._where("wall_seconds")
            lowered = f"lowered to limits.wall_seconds = {limits.wall_seconds:g} ({where})"
            return limits, [f"timeout_seconds {timeout_seconds:g} was {lowered}"]
        return limits.model_copy(update={"wall_seconds": timeout_seconds}), []

    def _where_of(self, limits: Limits, limit: str) -> str:
        """The place of a limit of this run: in the manifest, or the caller's `timeout_seconds`."""
        ordinary = self.authority.manifest.portal.capabilities.limits
        if limit == "wall_seconds" and limits.wall_seconds != ordinary.wall_seconds:
            return "timeout_seconds of this call"
        return self._where(limit)

    def _where(self, limit: str) -> str:
        return self.authority.manifest.where("capabilities", "limits", limit)

    def _stdout_notice(self, result: RunResult) -> tuple[str, ...]:
        if not result.stdout_bytes_dropped:
            return ()
        kept = self.authority.manifest.portal.capabilities.limits.stdout_bytes
        where = self._where("stdout_bytes")
        limit = f"limits.stdout_bytes = {kept:,} ({where})"
        return (f"stdout: {result.stdout_bytes_dropped:,} bytes over {limit} were dropped",)


def _refused(ledger: Ledger, error: RunError, notices: Sequence[str] = ()) -> Answer:
    return Answer("refused", ledger.run_id, error=error, notices=tuple(notices))


def _check_error(diagnostics: list[Diagnostic]) -> RunError:
    lines = [f"line {d.line}: {d.message}" for d in diagnostics[:MAX_DIAGNOSTICS]]
    if len(diagnostics) > MAX_DIAGNOSTICS:
        lines.append(f"and {len(diagnostics) - MAX_DIAGNOSTICS} more")
    hints = dict.fromkeys(d.hint for d in diagnostics[:MAX_DIAGNOSTICS] if d.hint)
    codes = {d.code for d in diagnostics}
    is_one = len(codes) == 1 and codes <= {"not_granted", "quarantined", "upstream_unavailable"}
    code = codes.pop() if is_one else "check_failed"
    return RunError(
        code, f"The script did not run. {'; '.join(lines)}", diagnostics[0].line, "\n".join(hints)
    )


def with_effects(error: RunError, ledger: Ledger) -> RunError:
    """The error, with a warning if calls of the failed run may have had effects."""
    done, unknown = ledger.count("done"), ledger.count("unknown")
    if not (done or unknown):
        return error
    counts = ", ".join(f"{count} {state}" for count, state in ((done, "done"), (unknown, "unknown")) if count)
    effects = f"Calls of this run: {counts}. Read `calls` before you run it again."
    hint = error.hint.strip()
    end = "" if not hint or hint.endswith((".", "!", "?", ":")) else "."
    return replace(error, hint=f"{hint}{end} {effects}".strip())

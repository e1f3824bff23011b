"""`execute_code`: runs a script and returns its answer."""

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final, Protocol, TypeAlias

import anyio
import structlog

from manifests.grants import Limits
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from manifests.manifest import Manifest
from portal.base.caller import LOCAL, Caller
from portal.base.errors import NO_UPSTREAMS, RunsError
from portal.base.requests import ExecuteCode
from portal.calls.broker import Broker
from portal.calls.caller_upstreams import CallerUpstreams
from portal.calls.channel import NO_CLIENT, ClientChannel
from portal.calls.pipeline import Pipeline
from portal.calls.run import CallNotices, Gateway, RunContext
from portal.catalog.authority import Authority, Authorization
from portal.catalog.catalog import Catalog
from portal.catalog.check.checker import Checker
from portal.catalog.check.diagnostics import Diagnostic
from portal.catalog.docs_search import DocsSearch
from portal.catalog.snapshot import Snapshot
from portal.records.audit.audit import Audit, RunAudit
from portal.records.ledger import Ledger
from portal.records.store.records import OPEN, FencedError, RunState, StoreError
from portal.records.telemetry import instruments
from portal.records.telemetry.instruments import current_trace, link_to
from portal.runs.answer import Answer, at_line
from portal.runs.journal import Journal, unwritten
from portal.runs.past import Piece, RunHead, new_run_id
from portal.runs.service import Runs
from portal.runs.sessions import Sessions
from portal.runs.trail import Note
from portal.runs.waits import Waits
from portal.runs.workspaces import SharedWorkspace
from sandbox_runtime.errors import DivergenceError, RecordError, ReplayInterruptedError
from sandbox_runtime.grants.files import Workspaces
from sandbox_runtime.grants.run_grants import RunGrants, open_grants
from sandbox_runtime.recording import Recording
from sandbox_runtime.replay import Repetition, resume
from sandbox_runtime.result import Prepared, RunError, RunResult
from sandbox_runtime.sandbox import Sandbox, Session
from upstreams.fleet import Fleet

log = structlog.get_logger()

_WORD = re.compile(r"[^\W\d]\w*")

_PORTAL = re.compile(r"\bportal\b")
_SEARCHED = re.compile(r"\b(?:search|describe)\b")

MAX_DIAGNOSTICS = 8
"""Findings listed in one refusal; more are counted."""

_HOURS: Final[Mapping[KernelName, str]] = {PYTHON: "hours=6", JAVASCRIPT: "{hours: 6}"}

_STUCK = (
    "It was not run again, and will not be. `calls` says what it did. The operator can see its journal, and fork it "
    "from an earlier point while its guest component is kept."
)

_DID_BEFORE = "`calls` says what it did before."

_UNWRITTEN = "the store of runs cannot be written now, so a crash of the portal would lose this answer"

AwaitUpstreams: TypeAlias = Callable[[Fleet, Collection[str]], Awaitable[object]]
"""Waits until these upstreams have started, or until their time to start is over."""


class OpenSandbox(Protocol):
    """Opens the sandbox of a kernel, or that of the component that a run began in, by its sha256."""

    async def __call__(self, name: KernelName = PYTHON, component: str = "") -> Sandbox: ...


def run_limits(manifest: Manifest, head: RunHead) -> tuple[Limits, Callable[[str], str], tuple[str, ...]]:
    """The limits of one run, what gives the place that sets a limit, and notices of what was lowered."""
    name, limits = manifest.portal.capabilities.limits.of_run(head.is_background)
    place = partial(manifest.where, "capabilities", "limits")
    where, most = place(name), limits.wall_seconds
    wall = where if name == "wall_seconds" else f"{name}, {where}"
    seconds = head.request.timeout_seconds or most
    if seconds < most:
        limits, wall = limits.model_copy(update={"wall_seconds": seconds}), "timeout_seconds of this call"
    lowered = f"timeout_seconds {seconds:g} was lowered to limits.{name} = {most:g} ({where})"
    notice = f"{lowered}; `await portal.sleep({_HOURS[head.kernel]})` can wait longer"
    notices = (notice,) if seconds > most else ()
    return limits, lambda limit: wall if limit == "wall_seconds" else place(limit), notices


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment of a run in its sandbox. `where` gives the place that sets a limit. `notices` say how it runs.
    `context` has the snapshot of its beginning.
    """

    piece: Piece
    sandbox: Sandbox
    limits: Limits
    where: Callable[[str], str]
    notices: Sequence[str]
    session: Session | None
    grants: RunGrants
    recording: Recording | None
    journal: Journal | None
    context: RunContext
    note: Note


@dataclass(frozen=True)
class Execution:
    """Runs the scripts of one profile against the catalog's current snapshot."""

    authority: Authority
    catalog: Catalog
    checker: Checker | None
    docs_search: DocsSearch
    gateway: Gateway
    sandbox: OpenSandbox
    sessions: Sessions
    audit: Audit
    await_upstreams: AwaitUpstreams
    runs: Runs
    files: Workspaces
    workspace: SharedWorkspace | None = None
    """The folder that scripts share, if they may write."""

    @property
    def profile(self) -> str | None:
        """The profile of the callers that it serves."""
        return self.authority.manifest.profile

    async def run(
        self,
        request: ExecuteCode,
        caller: Caller = LOCAL,
        ledger: Ledger | None = None,
        channel: ClientChannel = NO_CLIENT,
    ) -> Answer:
        """Run one script, or return the answer of an earlier run. Failures of the script, its tools or its worker
        become part of the answer.

        `ledger` is filled during the run, so that the calls and the output can be read there after a cancellation.
        `channel` reports the current stage to the client.
        """
        if request.run is not None or request.background:
            return await self._kept(request, caller)
        head = RunHead(request, caller, self.profile, trace=current_trace(), began=time.time())
        piece = Piece(new_run_id(), head)
        try:
            answer = await self.segment(piece, channel, ledger)
            if answer.status in OPEN:
                try:
                    return await self.runs.final_answer(piece.run_id)
                except StoreError as error:  # the run goes on, and its client may ask again
                    log.error("runs_not_read", run=piece.run_id, error=str(error))
            return answer
        finally:
            self.runs.questions.leave(piece.run_id)

    async def _kept(self, request: ExecuteCode, caller: Caller) -> Answer:
        """The answer of an earlier run, or of one that begins in the background."""
        try:
            if request.run is None:
                return await self.runs.start(self.profile, request, caller)
            return await self.runs.answer(request.run, caller.run_owner)
        except RunsError as error:
            return _refused("", error)
        except StoreError as error:
            log.error("runs_not_read", error=str(error))
            message = "the store of runs cannot be read; the portal's log says why"
            return Answer("refused", "", error=RunError("store_failed", message, hint="Try again later."))

    async def segment(self, piece: Piece, channel: ClientChannel, ledger: Ledger | None = None) -> Answer:
        """Do one segment of a run: from start or resume until it ends or is suspended."""
        ledger = ledger if ledger is not None else Ledger()
        ledger.run_id = piece.run_id
        note = Note()
        audit = self.audit.run(piece.run_id, piece.head.caller, self.profile)
        audit.began(piece.head.request.code, is_resumed=piece.epoch > 1, **piece.head.kernel_told)
        # The first segment is a child of the request's span. Others have their own traces, with a link to it.
        links = [link_to(piece.head.trace)] if piece.epoch else []
        with self.gateway.telemetry.script_run.span(
            "run script", {instruments.RUN: piece.run_id}, links=links
        ) as found:
            try:
                answer = note.answer = await self._run(piece, ledger, channel, audit, note)
                note.status, note.code = answer.status, answer.error.code if answer.error else ""
                return answer
            except anyio.get_cancelled_exc_class():
                note.status, note.code = "cancelled", ""
                if not piece.epoch:
                    with anyio.CancelScope(shield=True):
                        await self.runs.end(piece.run_id, "cancelled")
                raise
            except Exception:
                if not piece.epoch:  # the client gets the error, so no portal may resume the run
                    await self.runs.end(piece.run_id, "error")
                raise
            finally:
                audit.ended(note.status, note.code, ledger)
                self.runs.trail.add(piece, ledger, note)
                found[instruments.STATUS] = note.status
                if piece.head.kernel != PYTHON:
                    found[instruments.KERNEL] = piece.head.kernel
                if note.code:
                    found[instruments.ERROR] = note.code

    async def _run(
        self, piece: Piece, ledger: Ledger, channel: ClientChannel, audit: RunAudit, note: Note
    ) -> Answer:
        """Open a segment, do its work, and say whether its session goes on."""
        try:
            async with self._opened(piece, ledger, channel, audit, note) as segment:
                answer = await self._journaled(segment)
        except RunsError as error:
            return _refused(piece.run_id, error)
        session = segment.session
        if session is None:
            return answer
        if session.alive:
            return replace(answer, session=session.id)
        lost = "the session ended with this run; its variables are lost"
        return replace(answer, notices=(*answer.notices, lost))

    @asynccontextmanager
    async def _opened(
        self, piece: Piece, ledger: Ledger, channel: ClientChannel, audit: RunAudit, note: Note
    ) -> AsyncIterator[Segment]:
        """Open a segment: its sandbox, session, files and journal. Raises RunsError: no sandbox, or no session."""
        head, caller, manifest = piece.head, piece.head.caller, self.authority.manifest
        capabilities = manifest.portal.capabilities
        limits, where, lowered = run_limits(manifest, head)
        channel.stage("waiting for a sandbox process; the first one on a machine is compiled")
        sandbox = await self.sandbox(head.kernel)
        async with (
            self.sessions.use(sandbox, head.request.session, caller) as session,
            open_grants(capabilities, self.files, session, caller.tenant, piece.run_id) as grants,
        ):
            history = self.sessions.history(session)
            history.sources.update(head.sources)
            authorization = Authorization(self.authority, history.sources, audit)
            is_journaled = session is None and self.runs.store is not None
            recording = self._recording(piece, grants) if is_journaled else None
            journal = note.journal = self.runs.journal(piece, recording, ledger, authorization)
            if (files := grants.files) is not None:
                ledger.files = files
                files.operations = piece.past.file_operations
                files.before_change = None if journal is None else journal.before_change
                if self.workspace is not None:
                    self.workspace.watch(files, authorization, journal)
            own = CallerUpstreams(self.gateway.accounts, manifest, caller, channel, limits.wall_seconds / 2)
            fetcher = self.gateway.fetchers.of_run(manifest, piece.past.fetches)
            began = head.began if isinstance(recording, Repetition) else inf
            context = RunContext(
                gateway=self.gateway,
                snapshot=await self.catalog.settled(),
                authorization=authorization,
                own=own,
                ledger=ledger,
                broker=Broker(own, authorization, self.gateway.observations, fetcher, began, head.kernel),
                docs_search=self.docs_search,
                history=history,
                journal=journal,
                waits=Waits(self.runs, journal, caller.run_owner, authorization, channel),
                notices=CallNotices() if journal is None else journal.notices,
            )
            notices = (*lowered, *([] if manifest.portal.upstreams else [NO_UPSTREAMS]))
            yield Segment(
                piece, sandbox, limits, where, notices, session, grants, recording, journal, context, note
            )

    def _recording(self, piece: Piece, grants: RunGrants) -> Recording:
        """A new recording, or one that begins with the record of earlier segments."""
        record = piece.past.record
        if record is None or record.settings is None:
            return Recording()
        return Repetition(record.with_environment(grants.environment), goes_on=True, mask=self.runs.mask)

    async def _journaled(self, segment: Segment) -> Answer:
        """Do a segment's work, and write the run's end.

        If the run was suspended, or ended by someone else, the store has its answer.
        """
        journal = segment.journal
        if journal is None:
            return await self._execute_code(segment)
        answer: Answer | None = None
        run, live = segment.piece.run_id, self.runs.live
        live[run] = journal
        try:
            with journal.scope:
                answer = await self._execute_code(segment)
            if answer is not None:
                await journal.finish(answer)
                return answer
        except FencedError:
            pass
        except StoreError as error:
            log.error("run_not_journaled", run=run, error=str(error))
            if answer is None:
                told = unwritten(error, "the run was stopped")
                answer = _failed(segment, "error", RunError(told.code, told.message, hint=_DID_BEFORE))
            # No portal may resume a run whose client has its answer; one without a client is ended only if held here.
            epoch = journal.epoch if segment.piece.epoch else None
            await self.runs.end(run, answer.status, answer.dump(), epoch)
            return replace(answer, notices=(*answer.notices, _UNWRITTEN))
        finally:
            if segment.recording is not None:  # also of a segment without an answer: suspended, or cancelled
                segment.note.result_bytes = segment.recording.value_bytes
            with anyio.CancelScope(shield=True):
                await journal.flushed()
            if live.get(run) is journal:  # the next segment may have begun
                del live[run]
        try:
            return await self.runs.answer(run, None)
        except RunsError as error:  # its row is gone, but its calls were made
            return _failed(segment, "error", RunError(error.code, str(error), hint=error.hint))
        except StoreError as error:  # it waits, or another portal has it, and its client may ask again
            log.error("runs_not_read", run=run, error=str(error))
            return Answer("waiting", run)

    async def _execute_code(self, segment: Segment) -> Answer:
        """Prepare the script, wait for its upstreams, check it, run it, and answer."""
        if isinstance(segment.recording, Repetition):
            return await self._go_on(segment, segment.recording)
        code, context = segment.piece.head.request.code, segment.context
        caller, stage, began = context.own.caller, context.own.channel.stage, time.perf_counter()
        within = segment.session, caller.queue_key, segment.grants, segment.recording, len(code)
        async with segment.sandbox.run(segment.limits, segment.where, *within) as run:
            self.gateway.telemetry.queue_wait.record(time.perf_counter() - began)
            # Results of earlier runs are read while the worker parses, which is another process.
            prepared = await run.prepare(code, context.snapshot.namespaces, self.catalog.fresh)
            if prepared.error is not None:
                refused = _failed(segment, "refused", prepared.error, prepared.notices)
                return replace(refused, at=at_line(prepared.error, code, context.kernel))
            stage("waiting for starting upstreams")
            await self._await_mentioned(context.snapshot, prepared)
            stage("checking the script")
            began = time.perf_counter()
            async with self.catalog.steady() as snapshot:
                error, found = await self._check(prepared, snapshot, caller, context.kernel)
            segment.note.check_ms = (time.perf_counter() - began) * 1000
            if error is not None:
                return _failed(segment, "refused", error, prepared.notices)
            notices = (*prepared.notices, *found)
            if segment.journal is not None:
                segment.journal.note_notices(notices)
            context.history.record_namespaces(snapshot.library, prepared.names)
            calls = Pipeline(context if snapshot is context.snapshot else replace(context, snapshot=snapshot))
            stage("running the script")
            try:
                result = await run.execute(snapshot.table(prepared.names, context.kernel), calls, calls)
            except anyio.get_cancelled_exc_class():
                context.ledger.stdout = run.stdout
                raise
            return self._answered(result, segment, notices, code)

    async def _go_on(self, segment: Segment, repetition: Repetition) -> Answer:
        """Go on where the record of a run ends. The script is not checked again: it was when it began."""
        script, component = repetition.replayed.script, repetition.replayed.origin.component
        names, context = frozenset(_WORD.findall(script)), segment.context
        await self._await_mentioned(context.snapshot, Prepared(script, names))
        calls = Pipeline(replace(context, snapshot=await self.catalog.fresh()))
        try:
            sandbox = await self.sandbox(segment.piece.head.kernel, component)
            who, where, grants = f"{context.own.caller.queue_key} resumed", segment.where, segment.grants
            result = await resume(sandbox, repetition, where, calls, calls, caller=who, grants=grants)
        except ReplayInterruptedError as error:
            message = f"the run could not be resumed: {error}"
            return _failed(segment, "error", RunError(error.code, message, hint=_DID_BEFORE))
        except (DivergenceError, RecordError) as error:
            log.error("run_stuck", run=segment.piece.run_id, reason=str(error))
            return _failed(segment, "stuck", RunError("stuck", f"the run cannot go on: {error}", hint=_STUCK))
        return self._answered(result, segment, (), script)

    def _answered(self, result: RunResult, segment: Segment, notices: Sequence[str], code: str) -> Answer:
        ledger, error, journal = segment.context.ledger, result.error, segment.journal
        self.gateway.telemetry.result_bytes.add(result.answers_bytes)
        segment.note.result_bytes = result.answers_bytes
        told = {"calls": ledger.calls, "ms": round(result.wall_ms, 1), **segment.piece.head.kernel_told}
        log.info("script_ran", run=ledger.run_id, error=error and error.code, **told)
        if journal is not None:  # it has those of earlier segments, too
            notices = journal.head.notices
        own = [*segment.context.notices.lines(), *result.notices]
        if result.stdout_bytes_dropped:
            limit = f"limits.stdout_bytes = {segment.limits.stdout_bytes:,} ({segment.where('stdout_bytes')})"
            own.append(f"stdout: {result.stdout_bytes_dropped:,} bytes over {limit} were dropped")
        return Answer(
            status="ok" if error is None else "error",
            run_id=ledger.run_id,
            result=result.value,
            stdout=result.stdout,
            error=error,
            at="" if error is None else at_line(error, code, segment.context.kernel),
            calls=ledger.rows(),
            notices=(*segment.notices, *notices, *own),
            emitted=result.emitted,
            sources=sorted(segment.context.authorization.sources),
            kernel=segment.context.kernel,
        )

    async def _await_mentioned(self, snapshot: Snapshot, prepared: Prepared) -> None:
        """Wait until the upstreams that the script may use are in the library, or until their time to start is over."""
        silent = snapshot.silent.keys()
        is_searching = any(use.namespace not in snapshot.namespaces for use in prepared.uses)
        waited = silent if is_searching or _may_search(prepared.source) else silent & prepared.names
        if waited:
            namespaces = self.authority.manifest.namespaces
            keys = {key for key, namespace in namespaces.items() if namespace in waited}
            await self.await_upstreams(self.gateway.accounts.fleet, keys)
            await self.catalog.fresh()

    async def _check(
        self, prepared: Prepared, snapshot: Snapshot, caller: Caller, kernel: KernelName
    ) -> tuple[RunError | None, list[str]]:
        """Check the script. Returns an error if it is refused, and notices."""
        if self.checker is None:
            return None, []
        if self.authority.manifest.portal.capabilities.files:
            mistakes = tuple(each for each in prepared.problems if each.code != "no_files")
            prepared = replace(prepared, problems=mistakes)
        with self.gateway.telemetry.check.span("check script", {}) as found:
            diagnostics = await self.checker.check(prepared, snapshot, caller.queue_key, kernel)
            refusing = [diagnostic for diagnostic in diagnostics if diagnostic.refuses]
            if refusing and self.authority.manifest.portal.server.check == "strict":
                error = _check_error(refusing)
                found[instruments.ERROR] = error.code
                return error, []
        return None, [
            f"line {each.line}: {each.message}" + (f". {each.hint}" if each.hint else "")
            for each in diagnostics
        ]


def _may_search(script: str) -> bool:
    """Whether a script may call `portal.search` or `portal.describe`, and so use any upstream."""
    # Two patterns, since the time of one with `.*` between them grows with the square of a hostile script.
    found = _PORTAL.search(script)
    return found is not None and _SEARCHED.search(script, found.end()) is not None


def _refused(run: str, error: RunsError) -> Answer:
    return Answer("refused", run, error=RunError(error.code, str(error), hint=error.hint))


def _failed(segment: Segment, status: RunState, error: RunError, notices: Sequence[str] = ()) -> Answer:
    notices, calls = (*segment.notices, *notices), segment.context.ledger.rows()
    return Answer(status, segment.piece.run_id, error=error, calls=calls, notices=notices)


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

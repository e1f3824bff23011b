"""`mcp-code-portal runs`: lists, shows, watches and steers the runs of a manifest, whether or not a portal is running.

It works directly on the store of runs, and shows the runs of all callers: whoever can read the file may see them.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio

from manifests.json_value import Json
from manifests.kernels import PYTHON, KernelName
from manifests.manifest import Manifest, narrowed
from portal.base.errors import RunsError
from portal.base.plain_text import cut
from portal.base.times import age, iso
from portal.cli.answers import print_answer
from portal.cli.terminal import Terminal, person, shell_command
from portal.identity.approvers import Approvers, Decider
from portal.records.store.places import Place, components_folder, holding, open_tables, place_of
from portal.records.store.records import OPEN, CallRow, RunRow, StoredRun, StoreError, ambiguous, short_id
from portal.records.store.run_tables import RunTables
from portal.runs import decisions
from portal.runs.answer import awaited
from portal.runs.components import Components
from portal.runs.decisions import decide_call
from portal.runs.past import Past, RunHead
from portal.runs.shown_calls import readable
from sandbox_runtime.errors import DivergenceError, RecordError
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.recording import Record
from sandbox_runtime.replay import replay as replay_record
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from upstreams.redaction import Redaction

Line: TypeAlias = Callable[[str], None]
Listed: TypeAlias = tuple[RunRow, str, Sequence[CallRow]]
"""A run, the name of its caller, and its calls."""
USAGE_ERROR = 2
TIMED_OUT = 4

_POLL_SECONDS = 0.2
_STEP_CHARACTERS = 200


@contextmanager
def _stores(manifest: Manifest, terminal: Terminal, run: str = "") -> Iterator[dict[RunTables, Place]]:
    """The manifest's store; without one, or if no run there begins with `run`, also those in this user's state folder.

    Raises StoreError: the manifest's store cannot be read.
    """
    own, opened, settings = place_of(manifest), dict[RunTables, Place](), manifest.portal.runs
    on_note = partial(decisions.add_messages, webhooks=settings.webhooks, base=settings.public_url)
    places: list[Place] = [own] if manifest.path else []
    if manifest.path and isinstance(own, Path) and not own.exists():
        # Those of earlier versions, which had numbered files. Only a portal converts them: opening one says so.
        places = [each for each in holding() if each.parent == own.parent]
    with ExitStack() as stack:
        for place in places:
            opened[stack.enter_context(closing(open_tables(place, manifest, on_note=on_note)))] = place
        if manifest.path is None or (run and not any(tables.listed(written=run) for tables in opened)):
            for place in (each for each in holding(run) if each not in places):
                try:
                    opened[stack.enter_context(closing(open_tables(place, None)))] = place
                except StoreError as error:
                    terminal.error(str(error))
        yield opened


@contextmanager
def _named(
    manifest: Manifest, options: Namespace, terminal: Terminal
) -> Iterator[tuple[RunTables, str, Place]]:
    """Find a run by its id or a unique prefix. Returns its store, its id, and the store's place. Raises RunsError."""
    run = options.run
    with _stores(manifest, terminal, run) as stores:
        found = {each.id: tables for tables in stores for each in tables.listed(limit=2, written=run)}
        if not found:
            hint = "`runs` lists them, `ui` also those that only read. runs.store and runs.key need --config FILE."
            raise RunsError("unknown_run", f"there is no run {run[:60]!r}", hint)
        if len(found) > 1:
            raise RunsError(*ambiguous("run", run, found))
        [(name, tables)] = found.items()
        yield tables, name, stores[tables]


def _loaded(tables: RunTables, run: str) -> StoredRun:
    """Everything about the run. Raises RunsError: it was deleted."""
    if (stored := tables.load(run)) is None:
        raise decisions.unknown_run(run)
    return stored


async def list_runs(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Print the open runs, and with `--all` also those that have ended, newest first."""
    with _stores(manifest, terminal) as stores:
        rows: dict[str, Listed] = {}
        for tables in stores:
            found = tables.listed(limit=options.limit, is_open=True)
            found += tables.listed(limit=options.limit) if options.all else []
            for row in found:
                calls = tables.calls(row.id) if row.state in OPEN else ()
                rows[row.id] = row, tables.caller(row.owner), calls
    newest = sorted(rows.values(), key=lambda each: (each[0].state not in OPEN, -each[0].began))
    listed = newest[: options.limit]
    if options.json:
        views = [
            {**decisions.run_view(row, caller), "waiting": decisions.waiting_view(calls)}
            for row, caller, calls in listed
        ]
        terminal.json(views)
    elif listed:
        _list(listed, terminal)
    else:
        none = "no run has a journal" if options.all else "no run is open; see `runs list --all`"
        terminal.note(f"{none}; `ui` also has those that only read")
        if manifest.path is None:
            terminal.note("there is no portal.yaml here: --config names the manifest of a portal")
    return 0


async def show(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    with _named(manifest, options, terminal) as (tables, run, _):
        stored = _loaded(tables, run)
    told = decisions.details(stored)
    if options.json:
        terminal.json(told)
        return 0
    terminal.line(f"{told['run_id']}: {told['state']}")
    for name in ("kernel", "caller", "tenant", "profile", "began", "updated", "ended", "wakes", "parent"):
        _show(name, told.get(name), terminal.line)
    terminal.line("    script")
    for line in told["code"].splitlines():
        terminal.line(f"      | {line}")
    for view in told["waiting"]:
        _show_call(view, "waits for", terminal.line)
    for each in told["decisions"]:
        decision = dict(each["decision"])
        terminal.line(f"{decision.pop('decision', 'decided')}: call {each['seq']} ({each['function']})")
        for name, value in decision.items():
            _show(name, value, terminal.line)
    # Calls also wait while the run makes others.
    answer = replace(decisions.answer_of(stored), waiting=told["waiting"])
    print_answer(answer, False, terminal, manifest.portal.server.output_tokens)
    return 0


async def watch(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Print the events of a run until it ends; without a run, those of all runs from now on."""
    with ExitStack() as stack:
        if options.run is not None:
            tables, run, _ = stack.enter_context(_named(manifest, options, terminal))
            _note_if_not_running(tables, run, terminal)
            seen = {tables: 0}
        else:
            stores = stack.enter_context(_stores(manifest, terminal))
            run, seen = None, {each: each.last_log() for each in stores}
        is_open = bool(seen)
        while is_open:
            # The state is read first, so that the log has everything that led to it.
            is_open = run is None or _is_open(tables, run)
            for tables in seen:
                while rows := tables.log_after(seen[tables], run):
                    seen[tables] = rows[-1].n
                    for row in rows:
                        view = {"at": iso(row.at), "run_id": row.run, "kind": row.kind, **row.call}
                        text = json.dumps(view) if options.json else "  ".join(map(str, view.values()))
                        terminal.line(text.rstrip())
            await anyio.sleep(_POLL_SECONDS if is_open else 0)
    if not seen:
        terminal.error("there is no store of runs yet: start a portal")
    return 0 if seen else 1


async def wait(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Wait until a run has ended, and print its answer. Exits with 1 if it is not ok, TIMED_OUT without an answer."""
    with _named(manifest, options, terminal) as (tables, run, _):
        _note_if_not_running(tables, run, terminal)
        asked: set[int] = set()
        with anyio.move_on_after(options.timeout):
            while _is_open(tables, run):
                for call in tables.calls(run):
                    if call.asks and call.seq not in asked:
                        asked.add(call.seq)
                        command = shell_command(manifest, "runs", "approve", run, str(call.seq))
                        terminal.note(
                            f"it waits for a person: mcp-code-portal ui {short_id(run)}, or {command}"
                        )
                await anyio.sleep(_POLL_SECONDS)
        stored = _loaded(tables, run)
    if stored.row.state in OPEN:
        terminal.error(f"run {run} has not ended within {options.timeout:g} s: it is {stored.row.state}")
        return TIMED_OUT
    answer = decisions.answer_of(stored)
    print_answer(answer, options.json, terminal, manifest.portal.server.output_tokens)
    return 0 if answer.status == "ok" else 1


async def decide(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Approve or deny a call that waits for a person. Exits with 2 if an approval is not confirmed."""
    state = "approved" if options.is_approved else "denied"
    with _named(manifest, options, terminal) as (tables, run, _):
        row = decisions.find_run(tables, run, None)
        call = decisions.call_to_decide(tables, row, options.seq)
        asks = options.is_approved and not options.yes and call.state == "waiting"
        # Printed outside of the transaction, because a slow terminal would hold the portal's lock.
        for view in decisions.waiting_view([call]) if asks or not options.json else []:
            # On stderr, where the question is: stdout may go elsewhere.
            line = terminal.note if asks else terminal.line
            _show_call(view, f"{run}:", line)
            _show("script", row.title, line)
            _show("changed", options.arguments, line)
        if asks and not await terminal.is_confirmed("Approve it?"):
            return USAGE_ERROR
        with tables.transaction(is_lasting=True):
            decider = Decider(f"{person('cli')} --yes" if options.yes else person("cli"))
            more = {"reason": options.reason, "arguments": options.arguments}
            decide_call(tables, run, call.seq, decider, Approvers(), is_approved=options.is_approved, **more)
        state = state if call.state == "waiting" else "revoked for later calls"
        view = {"run_id": run, "seq": call.seq, "function": call.function, "state": state}
        _print_change(view, f"call {call.seq} is {state}", options, terminal)
        _note_if_not_running(tables, run, terminal)
    return 0


async def cancel(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    with _named(manifest, options, terminal) as (tables, run, _), tables.transaction(is_lasting=True):
        decisions.cancel_run(tables, run)
    _print_change({"run_id": run, "state": "cancelled"}, f"run {run} is cancelled", options, terminal)
    return 0


async def replay(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Repeat a run from its journal without making a call, and print its steps. Exits with 1 if it differs."""
    with _named(manifest, options, terminal) as (tables, run, place):
        stored = _loaded(tables, run)
    head, _, record = _past(stored)
    own = narrowed(manifest, head.profile) if head.profile in manifest.portal.profiles else manifest
    record = record.with_environment(own.portal.capabilities.environment)
    if options.at is not None:
        record = record.until(_index(record, options.at) + 1)
    divergence, result = None, None
    async with AsyncExitStack() as stack:
        sandbox = await _sandbox(record, head.kernel, own, components_folder(place), stack, terminal)
        try:
            mask, where = Redaction(manifest.hidden), partial(own.where, "capabilities", "limits")
            result = await replay_record(sandbox, record, where, mask=mask)
        except DivergenceError as error:
            divergence, record = error, record.until(error.index)
        except RecordError:
            # A record without an ending was replayed to its last event.
            if record.ending is not None or record.origin.position:
                raise
    ended = {} if result is None else {"result": result.value, "error": result.error and result.error.message}
    if options.json:
        differs = divergence and {key: vars(divergence)[key] for key in ("index", "expected", "got")}
        told = {"run_id": stored.row.id, "steps": [*_steps(record)], **ended, "differs": differs}
        terminal.json(told)
        return 0 if divergence is None else 1
    for step in _steps(record):
        seq, function, text = step.get("seq", ""), step.get("function", ""), step["text"]
        terminal.line(f"{seq:>4}  {step['kind']:<9} {function} {cut(text, _STEP_CHARACTERS)}".rstrip())
    if divergence is not None:
        terminal.error(f"the replay differs from the journal: {divergence}")
        return 1
    for name, value in ended.items():
        _show(name, value, terminal.line)
    far = "" if ended else ", as far as it goes: the run has no end here"
    terminal.line(f"the replay is identical{far}")
    return 0


async def fork(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Start a run that continues live from a point of another one. Exits with 2 if it is not confirmed."""
    try:
        code = None if options.script is None else options.script.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        terminal.error(f"cannot read {options.script}: {error}")
        return USAGE_ERROR
    with _named(manifest, options, terminal) as (tables, run, _):
        _announce_fork(_loaded(tables, run), options.at, terminal)
        if not options.yes and not await terminal.is_confirmed("Go on?"):
            return USAGE_ERROR
        with tables.transaction(is_lasting=True):
            row = decisions.fork_run(tables, run, options.at, code, mask=Redaction(manifest.hidden))
        text = f"{row.id} continues from there. Its answer: {shell_command(manifest, 'runs', 'wait', row.id)}"
        _print_change(decisions.run_view(row, tables.caller(row.owner)), text, options, terminal)
        _note_if_not_running(tables, row.id, terminal)
    return 0


def _list(listed: Sequence[Listed], terminal: Terminal) -> None:
    columns = ("run", "state", "age", "caller", "waits for", "script")
    rows = [
        (short_id(row.id), row.state, age(row.began), caller, _what(calls), row.title)
        for row, caller, calls in listed
    ]
    terminal.table(columns, rows, whole=3)  # the id will be pasted


async def _sandbox(
    record: Record,
    kernel: KernelName,
    manifest: Manifest,
    components: Path,
    stack: AsyncExitStack,
    terminal: Terminal,
) -> Sandbox:
    """The sandbox with the guest component in which a run began. Raises RecordError: it is not kept."""
    own = manifest.portal.server.component if kernel == PYTHON else None
    component = manifest.folder / own if own else None
    opening = open_sandbox(workers=1, component=component, kernel=KERNELS[kernel], progress=terminal.note)
    sandbox = await stack.enter_async_context(opening)
    if sandbox.component == record.origin.component:
        return sandbox
    return await Components(components, stack, terminal.note).sandbox(record.origin.component, kernel)


def _steps(record: Record) -> Iterator[dict[str, Json]]:
    """The steps of a run: `{kind, seq?, function?, text}`. Clocks are left out; operations on files have no `seq`."""
    calls: dict[int, dict[str, Json]] = {}
    seqs = {identity: seq for seq, identity in enumerate(record.call_ids(), 1)}
    for event in record.events:
        if event.kind == "sent":
            for identity, call in event.lines():
                function, _, arguments = call.partition(" ")
                if call:
                    seq = {"seq": seqs[identity]} if identity in seqs else {}
                    calls[identity] = {**seq, "function": function}
                yield {"kind": "call" if call else "cancelled", **calls.get(identity, {}), "text": arguments}
        elif event.kind == "answered":
            for identity, is_value, *rest in replace(record, events=(event,)).answers():
                text = json.dumps(rest[0], ensure_ascii=False) if is_value else ": ".join(map(str, rest[:2]))
                yield {"kind": "answer" if is_value else "error", **calls[identity], "text": text}
        elif event.kind != "clock":
            yield {"kind": event.kind, "text": event.error.message if event.error else event.text}


def _announce_fork(stored: StoredRun, at: int, terminal: Terminal) -> None:
    _, past, record = _past(stored)
    record = record.until(_index(record, at))
    kept = Past(
        record, {}, {seq: call for seq, call in past.calls.items() if seq <= record.calls_made}
    ).settled
    terminal.note(f"Another run will repeat {stored.row.id} up to call {at}, and continue live from there:")
    for seq, entry in sorted(past.entries.items()):
        word = "its answer is taken from the journal" if seq in kept else "called live, again"
        terminal.note(f"{seq:>4}  {entry.function}: it was {entry.state}; {word}")
    terminal.note(f"Every call from {record.calls_made + 1} on is made live, whatever it did the first time.")


def _past(stored: StoredRun) -> tuple[RunHead, Past, Record]:
    """Raises RunsError: the run has no record."""
    head, past = Past.of(stored)
    if past.record is None:
        message = f"run {stored.row.id} has no record: it did not begin yet, or is of a session"
        raise RunsError("no_record", message, "It has an answer only.")
    return head, past, past.record


def _index(record: Record, seq: int) -> int:
    """The index of the event with which the script made a call. Raises RunsError: no such call."""
    index = record.index_of_call(seq)
    if index is None:
        message = f"the run made {record.calls_made} calls, and no call {seq}"
        raise RunsError("unknown_call", message, "`runs replay` lists them.")
    return index


def _print_change(view: dict[str, Json], text: str, options: Namespace, terminal: Terminal) -> None:
    if options.json:
        terminal.json(view)
    else:
        terminal.line(text)


def _show_call(view: dict[str, Json], label: str, line: Line) -> None:
    """Print a waiting call; if it waits for a person, everything that this person approves, except the script."""
    line(f"{label} call {view['seq']}: {view['function']}")
    for name, value in {**view, **view.get("asked", {})}.items():
        if name == "arguments":
            shown = value.split("\n") if isinstance(value, str) else readable(value, sys.maxsize)
            for each in ("arguments", *shown):
                line(f"    {each}".expandtabs(4))
        elif name not in ("seq", "function", "asked", "script", "may_stand", "types"):
            _show(name, value, line)


def _show(name: str, value: Json, line: Line) -> None:
    """Print a value under its name: texts unchanged, others as JSON, on as many lines as it needs."""
    if value is None or value == "":
        return
    lines = [value] if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2).split("\n")
    line(f"    {name:<16} {lines[0]}")
    for each in lines[1:]:
        line(f"      {each}")


def _is_open(tables: RunTables, run: str) -> bool:
    row = tables.row(run)
    return row is not None and row.state in OPEN


def _note_if_not_running(tables: RunTables, run: str, terminal: Terminal) -> None:
    if _is_open(tables, run) and not tables.has_replicas():
        terminal.note("no portal with this manifest is running: the run continues when one is started")


def _what(calls: Sequence[CallRow]) -> str:
    first, *others = [*map(awaited, decisions.waiting_view(calls))] or [""]
    return f"{first} +{len(others)}" if others else first

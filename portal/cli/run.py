"""`mcp-code-portal run`."""

import sys
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from manifests.kernels import JAVASCRIPT
from manifests.manifest import Manifest
from portal.app.composition import open_portal
from portal.base.caller import LOCAL
from portal.base.errors import RunsError
from portal.base.requests import ExecuteCode
from portal.cli.answers import print_answer
from portal.cli.terminal import Terminal, shell_command, upstreams_tried
from portal.records.ledger import Ledger
from portal.records.store.records import ASKING, OPEN, StoreError
from portal.runs.answer import Answer
from portal.server.portal import Portal
from sandbox_runtime.result import RunError

_KERNELS: Final = dict.fromkeys((".js", ".mjs", ".ts", ".mts"), JAVASCRIPT)


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Run a script. Its output and its value go to stdout; the ledger, notices and emitted blocks go to stderr.

    Exits with 1 if the script failed or was refused, 2 if it cannot be read.
    """
    try:
        is_piped = options.script == Path("-")
        read = sys.stdin.read if is_piped else partial(options.script.read_text, "utf-8-sig")
        code = await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
    except (OSError, UnicodeDecodeError) as error:
        terminal.error(f"cannot read {options.script}: {error}")
        return 2
    ledger, output_tokens = Ledger(), manifest.portal.server.output_tokens
    async with open_portal(
        manifest,
        terminal.note,
        profile=options.profile,
        # Upstreams end with this command, so each start counts as the only attempt.
        await_upstreams=lambda fleet, names: upstreams_tried(fleet, terminal, names),
        runs="own",
    ) as portal:
        try:
            kernel = options.kernel or _KERNELS.get(options.script.suffix.lower())
            request = ExecuteCode(code, timeout_seconds=options.timeout, kernel=kernel)
            caller = replace(LOCAL, client="command line")
            answer = await portal.execution.run(request, caller, ledger)
            if answer.status in OPEN:
                answer = await _final_answer(portal, answer.run_id, manifest, terminal)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await _tell_interrupted(portal, ledger, manifest, options, terminal)
            raise
        # Upstreams may take long to end, and who does not wait for that must not lose the answer.
        print_answer(answer, options.json, terminal, output_tokens)
    return 0 if answer.status == "ok" else 1


async def _final_answer(portal: Portal, run: str, manifest: Manifest, terminal: Terminal) -> Answer:
    """The answer of a run that waits, once it has ended. Says of each call that it waits for it."""
    told = set[int]()
    async for answer in portal.runs.answers(run):
        for call in (each for each in answer.waiting if each["seq"] not in told):
            told.add(call["seq"])
            until = f" until {call['until']}" if "until" in call else ""
            terminal.note(f"the run waits{until} for call {call['seq']} ({call['function']})")
            if call["kind"] in ASKING:
                approve = shell_command(manifest, "runs", "approve", run, str(call["seq"]))
                terminal.note(f"decide with: {approve}")
    return answer


async def _tell_interrupted(
    portal: Portal, ledger: Ledger, manifest: Manifest, options: Namespace, terminal: Terminal
) -> None:
    """Say how far an interrupted run came. One that has waited outlives this command."""
    answer = _interrupted(ledger)
    if ledger.run_id:
        with suppress(RunsError, StoreError):
            kept = await portal.runs.answer(ledger.run_id, None)
            answer = kept if kept.status in OPEN else answer
    is_open = answer.status in OPEN
    if options.json or (not is_open and (answer.calls or answer.stdout)):
        print_answer(answer, options.json, terminal, manifest.portal.server.output_tokens)
    if is_open:
        cancel = shell_command(manifest, "runs", "cancel", answer.run_id)
        terminal.note(f"the run stays open, and goes on in the next portal. To end it: {cancel}")


def _interrupted(ledger: Ledger) -> Answer:
    advice = "A call with the state `unknown` may have happened: check before running the script again."
    error = RunError("cancelled", "the run was interrupted", hint=advice if ledger.count("unknown") else "")
    return Answer("error", ledger.run_id, stdout=ledger.stdout, error=error, calls=ledger.rows())

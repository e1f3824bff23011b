"""`mcp-code-portal run`."""

import sys
from argparse import Namespace
from collections.abc import Collection
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.answer import Answer
from portal.budget.content import content_blocks
from portal.cli.terminal import Terminal, shell_command, upstreams_tried
from portal.composition import open_portal
from portal.definitions import ExecuteCode
from portal.ledger import Ledger
from sandbox_runtime.result import RunError
from upstreams.fleet import Fleet


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

    async def await_upstreams(fleet: Fleet, names: Collection[str]) -> None:
        # They end with this command, so a later attempt would start them again.
        await upstreams_tried(fleet, terminal, names)

    async with open_portal(
        manifest, terminal.note, profile=options.profile, await_upstreams=await_upstreams, runs="own"
    ) as portal:
        try:
            request = ExecuteCode(code, timeout_seconds=options.timeout)
            answer = await portal.execution.run(request, ledger=ledger)
            if answer.status == "waiting":
                for notice in answer.structured()["notices"]:
                    terminal.note(notice)
                for call in answer.waiting:
                    if call["kind"] in ("ask", "approve"):
                        words = "runs", "approve", answer.run_id, str(call["seq"])
                        terminal.note(f"decide with: {shell_command(manifest, *words)}")
                answer = await portal.runs.final_answer(answer.run_id, to_its_end=True)
        except anyio.get_cancelled_exc_class():
            answer = _interrupted(ledger)
            if answer.calls or answer.stdout or options.json:
                print_answer(answer, options.json, terminal, output_tokens)
            raise
    print_answer(answer, options.json, terminal, output_tokens)
    return 0 if answer.status == "ok" else 1


def _interrupted(ledger: Ledger) -> Answer:
    """The answer of a run that a signal ended."""
    hint = ""
    if ledger.count("unknown"):
        hint = "A call with the state `unknown` may have happened: check before running the script again."
    error = RunError("cancelled", "the run was interrupted", hint=hint)
    return Answer("error", ledger.run_id, stdout=ledger.stdout, error=error, calls=ledger.rows())


def print_answer(answer: Answer, is_json: bool, terminal: Terminal, output_tokens: int) -> None:
    """Print its output and its value on stdout, the ledger, notices and emitted blocks on stderr.

    The blocks are those that a client would get with these `output_tokens`.
    """
    structured, emitted = answer.structured(), content_blocks(answer.emitted, output_tokens // 2)
    structured["notices"] += emitted.notices
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in emitted.blocks]
    if is_json:
        terminal.json({**structured, "emitted": blocks} if blocks else structured)
        return
    _show(structured, terminal)
    for block in blocks:
        terminal.note(f"emitted: {block['type']} {block.get('mimeType', '')}".strip())


def _show(answer: dict[str, Json], terminal: Terminal) -> None:
    if answer["stdout"]:
        terminal.result(answer["stdout"])
    if answer["result"] is not None:
        terminal.json(answer["result"])
    for row in answer["calls"]:
        error = f"  {row['error']['code']}: {row['error']['message']}" if "error" in row else ""
        many = f" x{row['count']}" if "count" in row else ""
        terminal.note(
            f"{row['seq']:>4}  {row['state']:<11} {row['ms']:>8} ms  {row['function']}{many}{error}"
        )
    for notice in answer["notices"]:
        terminal.note(f"notice: {notice}")
    if error := answer["error"]:
        if traceback := error.get("traceback"):
            terminal.quote(traceback)
        at = f" (line {error['line']})" if error["line"] else ""
        refused = "refused, " if answer["status"] == "refused" else ""
        terminal.error(f"{refused}{error['code']}{at}: {error['message']}")
        if error["hint"]:
            terminal.note(f"hint: {error['hint']}")

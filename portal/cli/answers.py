"""Prints the answer of a run, for people or as JSON."""

from manifests.json_value import Json
from portal.cli.terminal import Terminal
from portal.runs.answer import Answer
from portal.runs.content import content_blocks


def print_answer(answer: Answer, is_json: bool, terminal: Terminal, output_tokens: int) -> None:
    """Print a run's output and value on stdout, its ledger, notices and emitted blocks on stderr.

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
    waiting = {view["seq"] for view in answer.get("waiting", ())}
    for row in answer["calls"]:
        error = f"  {row['error']['code']}: {row['error']['message']}" if "error" in row else ""
        many = f" x{row['count']}" if "count" in row else ""
        state = "waiting" if row["seq"] in waiting else row["state"]
        terminal.note(f"{row['seq']:>4}  {state:<11} {row['ms']:>8} ms  {row['function']}{many}{error}")
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

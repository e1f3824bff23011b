"""Writes the numbers of README, docs/benchmarks.md and benchmarks/README.md from benchmarks/results/*.json.

python -m benchmarks.table
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.clients import CLIENTS
from benchmarks.goals import goal_rows
from benchmarks.measuring import RESULTS
from benchmarks.sandbox import workload

_HERE = Path(__file__).resolve().parent
README, NUMBERS, GOALS = _HERE.parent / "README.md", _HERE.parent / "docs/benchmarks.md", _HERE / "README.md"


_SANDBOX_ROWS = (
    ("a trivial script, p50 / p99, ms", workload.TRIVIAL_P50, workload.TRIVIAL_P99),
    ("1,000 calls one after the other / gathered, us each", workload.SEQUENTIAL, workload.GATHERED),
    ("50 parallel calls of 50 ms, ms", workload.SLOW),
    ("a 5 MB JSON result filtered to 20 rows, ms", workload.LARGE),
    ("a loop of 3,000,000 rounds, ms", workload.LOOP_MS),
    ("trivial scripts per second, 8 clients", workload.THROUGHPUT),
    ("private memory of a worker or an instance, MB", workload.MEMORY),
    ("start to first result, ms", workload.START),
)

_ITEMS = (
    *(
        "definitions",
        "instructions",
        "search: git",
        "full: git.git_log",
        "trivial",
        "5 mixed calls",
        "28 mixed calls",
    ),
    *("150 calls, 2 failed", "tool error", "refused: argument", "2,800 rows", "first scripts, mean"),
)


def read(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text("utf-8")))


def portal_rows() -> Iterator[str]:
    measured = read("portal")
    rows = measured["rows"]
    yield "| through an MCP client over stdio | " + " | ".join(_behind(row) for row in rows) + " |"
    yield "|---|" + "---|" * len(rows)
    for key, label in (
        ("trivial", "a trivial script, p50 / p99"),
        ("trivial_over_http", "the same over Streamable HTTP"),
        ("one_direct_call", "one direct call, without a portal"),
        ("five_reads", "five calls that only read in one script, one after the other"),
        ("five_calls", "five calls of a tool that declares nothing"),
        ("five_calls_gathered", "the same, gathered"),
        ("five_direct_calls", "five direct calls, without a portal"),
        ("search", "docs_search"),
    ):
        if all(key in row for row in rows):
            yield (
                f"| {label} | "
                + " | ".join(f"{r[key]['p50_ms']} / {r[key]['p99_ms']} ms" for r in rows)
                + " |"
            )
    for key, label in (
        ("start_to_tools_list_ms", "start to tools/list"),
        ("start_to_first_script_ms", "start to the first script's answer"),
        ("start_to_whole_library_ms", "start to the whole library"),
        ("cold_start_to_whole_library_ms", "the same, when nothing has been compiled before"),
    ):
        if all(key in row for row in rows):
            yield f"| {label} | " + " | ".join(f"{row[key] / 1000:.1f} s" for row in rows) + " |"
    yield "| memory of the portal and all its processes | " + " | ".join(_memory(row) for row in rows) + " |"
    if all("memory_at_rest_mb" in row for row in rows):
        cells = (f"{sum(row['memory_at_rest_mb'].values()):.0f} MB" for row in rows)
        yield "| the same at rest, two minutes later | " + " | ".join(cells) + " |"
        cells = (f"{row['script_after_rest_ms']:.0f} ms" for row in rows)
        yield "| five calls in a new script then | " + " | ".join(cells) + " |"
    yield ""
    yield f"({_machine(measured['machine'])}; client, portal and upstreams share it.)"
    yield ""
    row = rows[0]
    names = ("five_reads", "five_calls", "bare_reads", "bare_calls")
    reads, calls, *bare = (row[name]["p50_ms"] / row["five_direct_calls"]["p50_ms"] for name in names)
    more = row["trivial"]["p50_ms"] - row["one_direct_call"]["p50_ms"]
    yield (
        f"With few tools, all in turns: a trivial script takes {more:.1f} ms more than a direct call (goal: 2.0). "
        f"Five calls that only read take {reads:.1f} times five direct ones (goal: 2.0), five that are journaled "
        f"{calls:.1f} times (goal: 2.2). The floor of both is {bare[0]:.1f} and {bare[1]:.1f} times: so long takes a "
        "server of the SDK that exchanges a line with another process before each call, commits a row, and does "
        "nothing else (`benchmarks/bare_relay.py`)."
    )


def readme_rows() -> Iterator[str]:
    """The portal beside its peers, in the few columns that choose between them."""
    measured = read("peers")
    alone, among = measured["settings"]
    tools = f"{among['tools']} tools"
    yield f"| p50 | a script runs in | a trivial script | five calls | first answer | a model reads, {tools} |"
    yield "|---" * 6 + "|"
    for row, later in _measured_peers(alone, among):
        cells = [
            f"{row['system']} {row['version']}".strip(),
            row["isolation"],
            _p50(row, "trivial"),
            _p50(row, "five_calls"),
            _first_answer(row),
            f"{later['definition_tokens']:,} tokens" if "definition_tokens" in later else "-",
        ]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield f"(One run in turns, {_machine(measured['machine'])}; `python -m benchmarks.peers`.)"


def peer_rows() -> Iterator[str]:
    measured = read("peers")
    alone, among = measured["settings"]
    yield (
        "| beside other portals, in turns; p50 | a new script finds | five calls gathered "
        f"| five calls, {among['tools']} tools | memory |"
    )
    yield "|---" * 5 + "|"
    for row, later in _measured_peers(alone, among):
        cells = [
            f"{row['system']} {row['version']}".strip(),
            {True: "what the last one left", False: "nothing", None: "-"}[row["keeps_state"]],
            _p50(row, "five_calls_gathered"),
            _p50(later, "five_calls"),
            f"{row['memory_mb']:.0f} MB" if row["memory_mb"] else "-",
        ]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    notes = [f"{row['system']}: {row['note']}" for row in alone["systems"] if row.get("note")]
    cannot = [f"{row['system']}: {row['cannot']}." for row in among["systems"] if "cannot" in row]
    yield (
        f"(The same run as the table in README: one stdio upstream, {_machine(measured['machine'])}; the "
        f"{among['tools']} tools are of {among['servers']} servers, the others over HTTP. {' '.join(notes + cannot)} "
        "For versions, p99, CPU and excluded systems see `python -m benchmarks.peers` and its peers.json.)"
    )


def _measured_peers(
    alone: dict[str, Any], among: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    pairs = zip(alone["systems"], among["systems"], strict=True)
    return ((row, later) for row, later in pairs if "cannot" not in row)


def _first_answer(row: dict[str, Any]) -> str:
    return f"{row['start_ms'].get('trivial', row['start_ms']['five_calls']) / 1000:.1f} s"


def task_rows() -> Iterator[str]:
    tasks = read("tasks")["tasks"]
    right = sum(not task["differences"] for task in tasks)
    direct, portal = (sum(task[f"{side}_tokens"] for task in tasks) for side in ("direct", "portal"))
    trips, fewer = (sum(task[f"{side}_round_trips"] for task in tasks) for side in ("direct", "portal"))
    translated = sum(not task["differences"] for task in read("tasks_javascript")["tasks"])
    yield (
        f"Of {len(tasks)} multi-step tasks with known answers (BFCL v4), {right} make every call with the recorded "
        f"arguments, get every recorded result and end in the recorded state. They cost {portal:,} tokens and "
        f"{fewer:,} round trips through the portal, with one search per turn and every result returned, and "
        f"{direct:,} tokens and {trips:,} round trips when their tools are called one by one "
        f"(`python -m benchmarks.tasks`). Translated to JavaScript, {translated} do (`--kernel javascript`); the "
        "others send 5000 where the recorded state has 5000.0, which are one number in JavaScript."
    )


def check_rows() -> Iterator[str]:
    measured = read("check")
    behind = ", ".join(
        f"{row['functions']:,} tools {row['new']['p50_ms']:.1f} / {row['new']['p99_ms']:.1f} ms"
        for row in measured["rows"]
    )
    last = measured["rows"][-1]
    how = ", with real-time priority" if measured["goes_first"] else ""
    held = [size for row in measured["rows"] for size in row["type_checker_mb"]]
    yield (
        f"Checking a new script of {measured['lines']} lines that uses three namespaces before it runs, p50 / p99: "
        f"{behind}; a repeated script {last['repeated']['p50_ms']:.2f} ms. The type checker holds at most "
        f"{max(held):.0f} MB over {measured['scripts']:,} different scripts, and killing it costs one check of "
        f"{last['after_kill_ms'][0]:.0f} ms ({_machine(measured['machine'])}{how}; `python -m benchmarks.check`)."
    )


def search_rows() -> Iterator[str]:
    measured = read("search")
    quality = {name: sets["macro"] for name, sets in measured["quality"].items()}
    cells = ", ".join(f"{name} {row['recall@5']:.3f} / {row['ndcg@10']:.3f}" for name, row in quality.items())
    low, high = measured["intervals_95"]["portal"]["macro"]["recall@5"]
    speed = "; ".join(
        f"{row['functions']:,} functions: a search {row['query_p95_ms']} ms (p95), a changed upstream indexed again in "
        f"{row['reindex_whole_upstream_p95_ms']} ms (p95)"
        for row in measured["speed"]
    )
    yield (
        f"Search, Recall@5 / nDCG@10 over six sets of queries: {cells} (its Recall@5 in 95 % of resamples: {low:.3f} "
        f"to {high:.3f}). {speed}; processor time (`python -m benchmarks.search`)."
    )


def token_rows() -> Iterator[str]:
    rows = read("tokens")["rows"]
    yield (
        "| tokens until three calls are made, median | "
        + " | ".join(f"{row['tools']:,} tools" for row in rows)
        + " |"
    )
    yield "|---" * (len(rows) + 1) + "|"
    label = "the definitions of all tools, and the calls"
    yield f"| {label} | " + " | ".join(f"{row['direct'][1]:,}" for row in rows) + " |"
    costs: dict[str, list[str]] = {}
    for client in CLIENTS:
        cells = " | ".join(f"{row['portal'][client][1]:,}" for row in rows)
        costs.setdefault(cells, []).append(client)
    for cells, clients in costs.items():
        which = "" if len(clients) == len(CLIENTS) else f"; clients that show {', '.join(clients)}"
        yield f"| the portal's definitions, three searches, three stubs, a script{which} | {cells} |"
    yield ""
    yield (
        "(Tools and functions are random samples of the recorded registries. Results of tools are not counted. For the "
        "parts of each row and their costs see `python -m benchmarks.tokens`.)"
    )
    yield ""
    yield from client_rows(read("tokens")["real"])


def client_rows(real: dict[str, Any]) -> Iterator[str]:
    yield f"| tokens that a model reads, by what its client shows | {' | '.join(CLIENTS)} |"
    yield "|---" * (len(CLIENTS) + 1) + "|"
    items = {**{item: real["items"][item] for item in _ITEMS}, "a session": real["session"]}
    for item, tokens in items.items():
        yield f"| {item} | " + " | ".join(f"{tokens[client]:,}" for client in CLIENTS) + " |"
    yield ""
    classes = ", ".join(f"{count} {kind}" for kind, count in real["classes"].items())
    yield (
        "(Structured: Claude Code, VS Code, Codex. Content: Claude Desktop, Gemini CLI. Both: Copilot CLI, ChatGPT. "
        "Seven real servers of npm and PyPI. A session is the definitions, three searches, one function in full and "
        f"three scripts. Of forty first scripts, as different models write them: {classes}.)"
    )


def sandbox_rows() -> Iterator[str]:
    measured = read("sandbox")
    names = {
        "ours": "this sandbox",
        "plain": "`exec`, no sandbox",
        "monty": "pydantic-monty",
        "eryx": "eryx",
    }
    systems = {
        names[name]: values for name, values in measured["compared"].items() if isinstance(values, dict)
    }
    yield "| the sandbox alone; each script starts afresh | " + " | ".join(systems) + " |"
    yield "|---" * (len(systems) + 1) + "|"
    for label, *keys in _SANDBOX_ROWS:
        cells = (
            " / ".join(_figure(values[key]) for key in keys if key in values) for values in systems.values()
        )
        yield f"| {label} | " + " | ".join(cell or "-" for cell in cells) + " |"
    yield ""
    versions = " and ".join(measured["requirements"].values())
    yield (
        f"(One run, {_machine(measured['machine'])}; {versions}. For further measurements, the cost of "
        "starts and a profile see `python -m benchmarks.sandbox`, its sandbox.json and `benchmarks/README.md`.)"
    )


def soak_rows() -> Iterator[str]:
    measured = read("soak")
    rows, killed = measured["all ways"], measured["killed workers"]
    grown = rows["growth after the first fifth"]
    yield (
        f"Of {rows['runs']:,} runs, {rows['failed, as they must']:,} failed on purpose, in every known way. "
        f"{rows['wrong answers']} answers were wrong, the portal's memory changed by {grown['portal_mb']:+.1f} MB and "
        f"its workers' by {grown['workers_mb']:+.1f} MB, and no process was left. {killed['killed']} workers were "
        f"killed at random moments, {killed['killed while they ran a script']} of them during a script: "
        f"{killed['lost']} runs were lost and reported as lost (`python -m benchmarks.soak`)."
    )


def journal_rows() -> Iterator[str]:
    measured = read("journal")
    rows = measured["rows"]
    yield (
        "| more with a journal, p50; in brackets computing of the portal alone | goal | "
        + " | ".join(_tools(tools) for tools in dict.fromkeys(row["tools"] for row in rows))
        + " |"
    )
    yield "|---" * (2 + len({row["tools"] for row in rows})) + "|"
    for script in dict.fromkeys(row["script"] for row in rows):
        same = [row for row in rows if row["script"] == script]
        cells = [
            f"{row['more_p50_ms']:+.2f} ms on {row['without_p50_ms']:.1f} ({row['more_computing_ms']:+.2f} ms)"
            for row in same
        ]
        yield f"| {script} | {same[0]['goal_ms']} ms | " + " | ".join(cells) + " |"
    written = [row["written"] for row in rows]
    on_loop = sum(each["loop"] for each in written) / sum(sum(each.values()) for each in written)
    yield ""
    yield (
        f"(In turns, {_machine(measured['machine'])}; fsync alone {measured['fsync']['p50_ms']} ms p50; the event loop "
        f"committed {on_loop:.0%} of the writes by itself; `python -m benchmarks.journal`.)"
    )


def trail_rows() -> Iterator[str]:
    measured = read("trail")
    own, without = measured["calls"], measured["off"]
    kept, _ = measured["in_a_row"]
    yield (
        f"With a row in the trail for each run, a trivial script over stdio takes {own['p50_ms']:.2f} / "
        f"{own['p99_ms']:.1f} ms, without one {without['p50_ms']:.2f} / {without['p99_ms']:.1f} ms (p50 / p99): "
        f"{measured['p50_ms_more']:+.2f} / {measured['p99_ms_more']:+.1f} ms, where two portals of one kind differ by "
        f"up to {measured['p50_ms_noise']:.2f} / {measured['p99_ms_noise']:.1f} ms (the means of two of each). The "
        f"portal computes {measured['computing_ms_more']:+.2f} ms more beside {without['computing_ms']:.2f} ms. "
        f"{kept['runs']:,} runs in a row leave {kept['rows']:,} rows, and {kept['more_mb']} MB more in memory "
        f"({_machine(measured['machine'])}; "
        "`python -m benchmarks.trail`)."
    )


def throughput_rows() -> Iterator[str]:
    measured = read("throughput")
    yield (
        "| a trivial script over HTTP beside an echo of the SDK | one caller, p50 / p99 | more, in pairs "
        "| sixteen callers | share | computing of the serving process |"
    )
    yield "|---|---|---|---|---|---|"
    for row in measured["rows"]:
        waited = (" / ".join(f"{ms:.1f}" for ms in row[f"{served}_ms"]) for served in ("portal", "echo"))
        yield (
            f"| {_CLIENTS[row['client']]}, {row['era']} | {' beside '.join(waited)} ms | {row['more_ms']:+.1f} ms "
            f"| {row['portal_per_second']} beside {row['echo_per_second']} per second | {row['share']:.2f} "
            f"| {row['portal_cpu_ms']:.2f} beside {row['echo_cpu_ms']:.2f} ms |"
        )
    yield ""
    yield (
        f"(In turns, {_machine(measured['machine'])}; a request makes {measured['functions']['portal']:,} calls of "
        f"Python functions in the portal's process, {measured['functions']['echo']:,} in the echo's; goals: at most "
        "+2.5 ms, a share of at least 0.7; `python -m benchmarks.throughput`.)"
    )


_CLIENTS = {"raw": "prepared bytes", "sdk": "the SDK's client"}


def replicas_rows() -> Iterator[str]:
    measured = read("replicas")
    faults = " and ".join(f"{count} times {what}" for what, count in measured["faults"].items())
    yield (
        f"Under load on {measured['replicas']} replicas with one Postgres, in {measured['minutes']:g} minutes, "
        f"{faults}. "
        f"{measured['runs']:,} runs made {measured['effects']:,} effects: {measured['doubled']} doubled, "
        f"{measured['lost']} lost, {measured['unknown']} told as `outcome_unknown`; the longest run took "
        f"{measured['seconds of a run, most']} s ({_machine(measured['machine'])}; `python -m benchmarks.replicas`)."
    )


def load_rows() -> Iterator[str]:
    measured = read("load")
    yield "| over HTTP, each client a script every ten seconds | scripts | errors | p50 | p99 | memory at the end |"
    yield "|---|---|---|---|---|---|"
    for phase in measured["phases"]:
        yield (
            f"| {phase['phase']} | {phase['scripts']:,} | {sum(phase['errors'].values())} | {phase['ms, p50']} ms "
            f"| {phase['ms, p99']} ms | {phase['MiB, first and last'][1]} MiB |"
        )
    yield ""
    yield f"(In {measured['minutes']:g} minutes, {_machine(measured['machine'])}; `python -m benchmarks.load`.)"


def parked_rows() -> Iterator[str]:
    measured = read("parked")
    wakes, storm, raced = measured["wakes"], measured["storm"], measured["races"]
    alone, beside = (storm[f"a trivial script, {where}"] for where in ("alone", "beside"))
    computing = wakes["computing_ms"]
    yield (
        f"With {measured['parked']:,} parked runs the portal and all its processes hold "
        f"{measured['memory with']['all_mb']:.0f} MB, without any {measured['memory without']['all_mb']:.0f} MB, and "
        f"their file {measured['disk_mb']:.0f} MB. From a person's word until the next call of a parked run is sent: "
        f"{_both(wakes['until the next call'])}, until it has ended: {_both(wakes['until the end'])} (p50 / p99; "
        f"{computing['client']:.0f} ms of computing in the portal, {computing['workers']:.0f} ms in its workers). "
        f"{storm['runs']:,} that wake at once have ended after {storm['seconds until all ended']:.0f} s; meanwhile a "
        f"trivial script of a new caller takes {_both(beside)} instead of {_both(alone)}. Of {sum(raced.values())} "
        f"pairs of decisions at the same moment the first won in {raced['the portal'] + raced['the other process']}, "
        f"and the other was told ({_machine(measured['machine'])}; `python -m benchmarks.parked`)."
    )


def kill_rows() -> Iterator[str]:
    measured = read("durable")
    by_edge = measured["kills by edge"]
    yield (
        f"Portals were killed {measured['kills']:,} times during {measured['runs']:,} runs, "
        f"{by_edge['a random moment']:,} times at a random moment, else before and after each kind of transaction and "
        f"call ({len(by_edge) - 1} edges). Of {measured['effects']:,} effects of calls that may not be repeated "
        f"{measured['doubled']} were doubled and {measured['lost']} lost; {measured['unknown']:,} calls were told as "
        f"`outcome_unknown` ({_machine(measured['machine'])}; `python -m benchmarks.durable`)."
    )


def replay_rows() -> Iterator[str]:
    runs = read("replays")["runs"]
    same = sum(not row["differs"] for row in runs)
    yield (
        f"Of the {len(runs)} runs of those tasks, {same} replay from their journal with the same answer, bit for bit "
        "(`python -m benchmarks.replays`)."
    )


def _both(times: dict[str, float]) -> str:
    return f"{times['p50_ms']:.1f} / {times['p99_ms']:.1f} ms"


def _tools(count: int) -> str:
    return "1 tool" if count == 1 else f"{count:,} tools"


def language_rows() -> Iterator[str]:
    measured = read("language")
    summary = measured["summary"]
    runs = summary["passed"] + summary["failed"]
    yield (
        f"Of CPython's own tests ({measured['suite']}), {runs:,} apply inside the sandbox: {summary['passed']:,} pass "
        f"({summary['passed'] / runs:.1%}), {summary['failed']:,} fail; {summary['cannot apply']:,} cannot apply, "
        "as they need threads, processes, sockets and the like (`docs/python.md`; `python -m benchmarks.language`)."
    )


def _behind(row: dict[str, Any]) -> str:
    servers = "1 server" if row["servers"] == 1 else f"{row['servers']} servers"
    return f"{servers}, {_tools(row['functions'])}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _p50(row: dict[str, Any], task: str) -> str:
    if task not in row:
        return "-"
    taken = row[task]["p50_ms"]
    return f"{taken / 1000:.1f} s" if taken > 1000 else f"{taken:.1f} ms"


def _memory(row: dict[str, Any]) -> str:
    return f"{sum(row['memory_mb'].values()):.0f} MB"


def _machine(machine: dict[str, Any]) -> str:
    load = f", load {machine['load']} before" if "load" in machine else ""
    return f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']}, {machine['date']}{load}"


def _text(rows: Callable[[], Iterator[str]]) -> str:
    """Nothing where a benchmark has not been run."""
    try:
        return "\n".join(rows())
    except FileNotFoundError:
        return ""


def _put(document: Path, name: str, text: str) -> None:
    """Write a text between the two markers of a document that have this name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, _, rest = document.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    document.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")


def main() -> None:
    kinds = (
        portal_rows,
        throughput_rows,
        peer_rows,
        sandbox_rows,
        soak_rows,
        language_rows,
        task_rows,
        kill_rows,
        replay_rows,
        journal_rows,
        trail_rows,
        parked_rows,
        replicas_rows,
        load_rows,
        check_rows,
        search_rows,
        token_rows,
    )
    _put(README, "numbers", _text(readme_rows))
    _put(NUMBERS, "numbers", "\n\n".join(text for rows in kinds if (text := _text(rows))))
    _put(GOALS, "goals", _text(lambda: goal_rows(read("sandbox"))))


if __name__ == "__main__":
    main()

"""Question: is a call made twice, or lost, when replicas and their database fail under load?

    python -m benchmarks.replicas --minutes 10

Three replicas (`serve --http`), whose clocks are a minute apart, share one Postgres. A client keeps runs going in the
background: each makes calls that may not be repeated, one by one and gathered, to an upstream that counts its effects
in a file. Meanwhile, by turns, a replica is killed, stopped for longer than a lease and resumed, cut off from the
database for as long, ended and started again as in a deploy, and the database is restarted and crashed. Then each
outcome that a script saw must be true: a value means one effect, `outcome_unknown` one or none; none has two. The audit
log, which all replicas write, must be whole and have a line for each effect. Raw numbers go to
benchmarks/results/replicas.json.

Needs Postgres: `scripts/servers --all` installs it from Debian.
"""

import argparse
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.durable import SCRIPT, CountingUpstream, Effects
from benchmarks.measuring import RESULTS, machine, percentile
from portal.records.audit.chain import START, verify
from portal.records.store.postgres import PostgresDatabase
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import LEASE_SECONDS
from tests.postgres import Postgres, postgres_server

REPLICAS = 3
AT_ONCE = 6
"""Runs that go on at the same time."""

PAUSE_SECONDS = 4.0
"""Between two faults."""

LONGEST_SECONDS = 120.0
"""A run that has not ended after this time is lost."""

OUTAGE_SECONDS = LEASE_SECONDS + 3

WITH_ANOTHER_CLOCK = """
import sys, time
seconds, now, now_ns = int(sys.argv.pop(1)), time.time, time.time_ns
time.time, time.time_ns = lambda: now() + seconds, lambda: now_ns() + seconds * 10**9
from portal.__main__ import main
main()
"""


@dataclass
class Tally(Effects):
    """What was seen. Refused are also runs that could not begin: the client was told, and tried again."""

    faults: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """What the runs are called in their scripts, by their ids."""
    audit_lines: int = 0
    unlogged: int = 0
    """Effects without a line in the audit log."""


class Network:
    """What is between a replica and the database: a port that passes on, and may stop doing so without a word."""

    def __init__(self, port: int) -> None:
        self._passes = threading.Event()
        self._passes.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(port,), daemon=True).start()

    def cut(self) -> None:
        self._passes.clear()
        time.sleep(OUTAGE_SECONDS)
        self._passes.set()

    def _accept(self, port: int) -> None:
        while True:
            one, _ = self._listener.accept()
            other = socket.socket()
            if other.connect_ex(("127.0.0.1", port)):  # the database is away
                one.close()
                continue
            for pair in ((one, other), (other, one)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._passes.wait()
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class Replica:
    """One `serve --http` with a network and a clock of its own, which is started again when it has ended."""

    def __init__(self, folder: Path, number: int, manifest: dict[str, Any], database: str, port: int) -> None:
        self._manifest, self._log = folder / f"replica{number}.json", folder / f"replica{number}.log"
        self._clock = str(60 * (number - 1))
        self.network = Network(port)
        store = database.replace(f":{port}/", f":{self.network.port}/")
        self._manifest.write_text(json.dumps({**manifest, "runs": {"store": store}}))
        self.url = ""
        self.is_paused = False
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log:
            log.write("-- started\n")
            log.flush()
            serve = ["serve", "--config", str(self._manifest), "--http", "127.0.0.1:0"]
            self.process = subprocess.Popen(
                [sys.executable, "-c", WITH_ANOTHER_CLOCK, self._clock, *serve],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            said = self._log.read_text().rpartition("-- started\n")[2]
            if found := re.search(r"listening on (http://\S+)/mcp", said):
                self.url = found[1]
                return
            time.sleep(0.05)
        raise TimeoutError(f"a replica did not start: {said[-2000:]}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.start()

    def redeploy(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.start()

    def pause(self) -> None:
        self.is_paused = True
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(OUTAGE_SECONDS)
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Load:
    """A client that keeps runs going, by any replica that answers."""

    def __init__(self, replicas: list[Replica], upstream: CountingUpstream, tally: Tally) -> None:
        self._replicas, self._upstream, self._tally = replicas, upstream, tally
        self._client = httpx2.Client(timeout=5.0)
        self._open: dict[str, tuple[str, float]] = {}
        self._numbers = 0

    def step(self, *, may_begin: bool) -> bool:
        """Begin and end what is due. Returns whether runs are open."""
        while may_begin and len(self._open) < AT_ONCE and self._begin():
            pass
        for run in [*self._open]:
            self._look(run)
        return bool(self._open)

    def _begin(self) -> bool:
        name = f"r{self._numbers}"
        self._numbers += 1
        script = f"run = {name!r}\n" + SCRIPT.replace("(n=n)", "(n=n, run=run)")
        answer = self._ask("POST", "/runs", json={"code": script})
        if answer is None or "run_id" not in answer or answer["status"] == "refused":
            self._tally.refused += 1
            return False
        self._open[answer["run_id"]] = name, time.monotonic()
        self._tally.names[answer["run_id"]] = name
        return True

    def _look(self, run: str) -> None:
        name, began = self._open[run]
        found = self._ask("GET", f"/runs/{run}")
        if found is not None and found.get("state") not in ("running", "waiting", None):
            del self._open[run]
            self._tally.seconds.append(time.monotonic() - began)
            self._tally.judge(name, found["answer"], self._upstream.counts(name))
        elif time.monotonic() - began > LONGEST_SECONDS:
            del self._open[run]
            self._tally.wrong.append(f"{name} ({run}) did not end: {json.dumps(found)[:500]}")

    def _ask(self, method: str, path: str, **named: Any) -> dict[str, Any] | None:
        """The answer of a replica that gives one."""
        for replica in random.sample(self._replicas, len(self._replicas)):
            if replica.is_paused:
                continue  # a load balancer takes it out
            try:
                response = self._client.request(method, replica.url + path, **named)
            except httpx2.HTTPError as error:
                if method == "POST" and not isinstance(error, httpx2.ConnectError):
                    return None  # it may have begun; nobody counts on it
                continue
            if response.status_code < 500:
                answer: dict[str, Any] = response.json()
                return answer
            if method == "POST":
                return None
        return None


def faults(replicas: list[Replica], server: Postgres) -> dict[str, Callable[[], None]]:
    def one() -> Replica:
        return random.choice(replicas)

    return {
        "a replica was killed": lambda: one().kill(),
        "a replica was stopped and resumed": lambda: one().pause(),
        "the database was restarted": lambda: server.restart("fast"),
        "a replica was cut off from the database": lambda: one().network.cut(),
        "a replica was deployed anew": lambda: one().redeploy(),
        "the database crashed": lambda: server.restart("immediate"),
    }


def run(minutes: float, seed: int, report: Callable[[str], None] = lambda line: None) -> Tally:
    """Load and faults for so many minutes, and then until all runs have ended."""
    random.seed(seed)
    tally, is_over = Tally(), threading.Event()
    with tempfile.TemporaryDirectory() as created, postgres_server() as server:
        folder = Path(created)
        upstream = CountingUpstream(folder)
        manifest = {
            "upstreams": {"box": {"url": f"http://127.0.0.1:{upstream.port}/mcp"}},
            "server": {"check": "off", "observe_results": False, "workers": 2},
            "audit": {"to": "store"},
        }
        database = server.new_database()
        replicas = [Replica(folder, number, manifest, database, server.port) for number in range(REPLICAS)]

        def break_things() -> None:
            known = faults(replicas, server)
            while not is_over.is_set():
                for name, fault in known.items():
                    if is_over.wait(PAUSE_SECONDS):
                        return
                    fault()
                    tally.faults[name] += 1

        breaking = threading.Thread(target=break_things)
        breaking.start()
        try:
            load, until = Load(replicas, upstream, tally), time.monotonic() + minutes * 60
            while load.step(may_begin=time.monotonic() < until) or time.monotonic() < until:
                if time.monotonic() > until:
                    is_over.set()
                report(f"{tally.runs} runs, {tally.faults.total()} faults, {len(tally.wrong)} wrong")
                time.sleep(0.1)
        finally:
            is_over.set()
            breaking.join()
            for replica in replicas:
                replica.end()
            upstream.close()
            judge_log(tally, database, upstream, folder / "audit.jsonl")
            if tally.wrong:
                for log in folder.glob("*.log"):
                    Path(tempfile.gettempdir(), log.name).write_text(log.read_text())
    return tally


def judge_log(tally: Tally, database: str, upstream: CountingUpstream, path: Path) -> None:
    """Whether the audit log is whole, and has each effect."""
    with closing(RunTables(PostgresDatabase(database), None)) as tables:
        path.write_text("".join(f"{line}\n" for line in tables.audit_lines(START.seq)))
    report = verify([path])
    tally.audit_lines = report.lines
    tally.wrong += report.problems
    events = [json.loads(line) for line in path.read_text().splitlines()]
    decided = Counter(event["run"] for event in events if event["event"] == "call_decided")
    tally.unlogged = sum(
        max(0, upstream.counts(name).total() - decided[run]) for run, name in tally.names.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--to", type=Path, default=RESULTS / "replicas.json")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    tally = run(options.minutes, options.seed, lambda line: print(line, end="\r", file=sys.stderr))
    found = {
        "minutes": options.minutes,
        "replicas": REPLICAS,
        "faults": dict(tally.faults),
        "runs": tally.runs,
        "effects": tally.effects,
        "doubled": tally.doubled,
        "lost": tally.lost,
        "unknown": tally.unknown,
        "lines of the audit log": tally.audit_lines,
        "effects without a line": tally.unlogged,
        "refused while the database was down": tally.refused,
        "seconds of a run, p50": round(percentile(tally.seconds, 0.5), 2),
        "seconds of a run, most": round(max(tally.seconds, default=0), 1),
        "wrong": tally.wrong[:20],
    }
    text = json.dumps({**found, "machine": machine()}, indent=2)
    print(text)
    options.to.write_text(text + "\n")
    sys.exit(bool(tally.doubled or tally.lost or tally.unlogged or tally.wrong or not tally.runs))


if __name__ == "__main__":
    main()

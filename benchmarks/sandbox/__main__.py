"""Question: what does a script cost in this sandbox, and in others, each script isolated from the one before?

    python -m benchmarks.sandbox [--only PART ...]

The parts are `ours`, across its process border, with calls that are answered at once; `plain`, the same through `exec`
in one process, which is the limit; `monty` and `eryx`, which come from PyPI into .cache/peers first; `alone`, what only
ours does; `split`, where the CPU of a trivial run goes; `start`, what starts cost, with memory. All in one go take
about two minutes. Numbers go to benchmarks/results/sandbox.json; with --only nothing is written.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring import RESULTS, commit, machine
from benchmarks.peers.environments import python_environment
from benchmarks.peers.system import CannotError
from benchmarks.sandbox import ours, split, start
from benchmarks.sandbox.workload import Measures
from sandbox_runtime.aot import AotCache, default_cache, guest_component

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("ours", "plain", "monty", "eryx", "alone", "split", "start")
REQUIREMENTS = {"monty": "pydantic-monty==1.5.0", "eryx": "pyeryx==0.11.0"}
AT_LEAST = {"monty": "3.11", "eryx": "3.12"}
PEER_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parts: Sequence[str] = parser.parse_args().only
    report: dict[str, object] = {"question": (__doc__ or "").splitlines()[0], "machine": machine()}
    report["commit"] = commit()
    compared: dict[str, Measures | str] = {}
    if "ours" in parts:
        compared["ours"] = asyncio.run(ours.compared())
    for name in ("plain", "monty", "eryx"):
        if name in parts:
            compared[name] = beside(name)
    report["compared"] = compared
    report["requirements"] = REQUIREMENTS
    if "alone" in parts:
        report["alone"], report["protections"] = asyncio.run(ours.alone())
    if "split" in parts:
        report["split"] = split.split(AotCache(default_cache(os.environ), print).compiled(guest_component()))
    if "start" in parts:
        report["start"] = start.starts() | asyncio.run(start.portal_memory())
    show(report, compared)
    if set(parts) == set(PARTS):
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "sandbox.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def beside(name: str) -> Measures | str:
    """What another one comes to, in a process of its own; why not, if it cannot be had or does not run through."""
    try:
        python = sys.executable
        if name in REQUIREMENTS:
            folder = python_environment(f"sandbox-{name}", REQUIREMENTS[name], at_least=AT_LEAST[name])
            python = str(folder / "python")
        done = subprocess.run(
            [python, "-m", f"benchmarks.sandbox.{name}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PEER_SECONDS,
        )
    except (CannotError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it failed"])[-1]
    return {key: float(value) for key, value in json.loads(done.stdout.splitlines()[-1]).items()}


def show(report: dict[str, object], compared: dict[str, Measures | str]) -> None:
    keys = dict.fromkeys(
        key for measures in compared.values() if isinstance(measures, dict) for key in measures
    )
    print(f"{'':60}" + "".join(f"{name:>12}" for name in compared))
    for key in keys:
        cells = (measures.get(key) if isinstance(measures, dict) else None for measures in compared.values())
        print(f"{key:60}" + "".join(f"{'-' if cell is None else f'{cell:,.3f}':>12}" for cell in cells))
    for name, measures in compared.items():
        if isinstance(measures, str):
            print(f"{name}: {measures}")
    for part in ("alone", "split", "start"):
        rows = report.get(part)
        if isinstance(rows, dict):
            print(f"\n{part}")
            for key, value in rows.items():
                print(f"{key:72}{value:,.3f}")


if __name__ == "__main__":
    main()

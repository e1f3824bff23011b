"""Question: when is nothing left of hundreds of stdio servers, once the portal closes them, or is killed?

    python -m benchmarks.endings_of_many [--out FILE]

Each server is a shell with children in sessions of their own; none reads its stdin, and a third ignores SIGTERM. All
hold a FIFO, which breaks when the last of them has ended: that is what is waited for. Linux only. Raw numbers go to
benchmarks/results/endings_of_many.json.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import anyio

from benchmarks.many_children import LifeLine, portal_with_children
from benchmarks.measuring import RESULTS, commit, machine

COUNTS = (1, 30, 100, 300)


async def seconds_to_end(count: int, way: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        life_line = LifeLine(Path(folder) / "fifo")
        async with portal_with_children(life_line, count) as portal:
            began = time.perf_counter()
            if way == "kill":
                portal.kill()
            else:
                assert portal.stdin
                await portal.stdin.aclose()
            await life_line.broken()
            return round(time.perf_counter() - began, 2)


async def main() -> dict[str, object]:
    seconds: dict[str, dict[int, float]] = {"close": {}, "kill": {}}
    results = {"machine": machine(), "commit": commit(), "seconds": seconds}
    for way, taken in seconds.items():
        for count in COUNTS:
            taken[count] = await seconds_to_end(count, way)
            print(f"{way:6} {count:4} servers: {taken[count]} s", flush=True)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "endings_of_many.json")
    options = parser.parse_args()
    measurements = anyio.run(main)
    options.out.write_text(json.dumps(measurements, indent=1) + "\n")
    print(f"raw numbers: {options.out}")

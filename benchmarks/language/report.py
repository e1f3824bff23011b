"""What all files came to: the numbers, and the list of what failed."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from benchmarks.language.rules import NEWER, OTHER, RULES, Rule, cannot_apply
from benchmarks.language.verdict import Entry, Verdict
from manifests.json_value import Json


@dataclass
class FileCount:
    """One file. `failures` are names with reasons; `cannot` counts by rule."""

    module: str
    passed: int = 0
    second_try: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    cannot: Counter[str] = field(default_factory=Counter)


def count(entry: Entry, written_tests: Callable[[str], int]) -> FileCount:
    """A file whose tests cannot be loaded counts with as many as it writes down, and at least one."""
    own, counted = entry.own, FileCount(entry.module)
    if own.whole is not None and not own.names:
        tests = max(1, written_tests(entry.module))
        rule = cannot_apply(own.whole)
        if rule is not None:
            counted.cannot[rule.name] += tests
        else:
            counted.failures += [(f"{entry.module} ({tests} tests)", own.whole.reason)] * tests
        return counted
    for number, verdict in own.verdicts.items():
        if verdict.outcome == "passed":
            counted.passed += 1
        elif _passes(entry.again, number):
            counted.passed += 1
            counted.second_try += 1
        elif (rule := _excuse(entry, number, verdict)) is not None:
            counted.cannot[rule.name] += 1
        else:
            counted.failures.append((own.names[number], verdict.reason))
    return counted


def summary(files: list[FileCount]) -> dict[str, Json]:
    cannot: Counter[str] = Counter()
    for file in files:
        cannot += file.cannot
    return {
        "files": len(files),
        "passed": sum(file.passed for file in files),
        "of which on a second try": sum(file.second_try for file in files),
        "failed": sum(len(file.failures) for file in files),
        "cannot apply": cannot.total(),
        "why": [
            {"rule": rule.name, "reason": rule.reason, "tests": cannot[rule.name]}
            for rule in sorted((*RULES, OTHER, NEWER), key=lambda rule: -cannot[rule.name])
        ],
    }


def rows(files: Iterable[FileCount]) -> Iterator[str]:
    for file in files:
        cannot = ", ".join(f"{tests} {name}" for name, tests in file.cannot.items())
        yield (
            f"{file.module}: {file.passed} passed, {len(file.failures)} failed"
            + f", cannot apply: {cannot}" * bool(cannot)
        )


def failures(files: Iterable[FileCount]) -> dict[str, str]:
    """The first line of each reason."""
    return {name: (reason.splitlines() or [""])[0][:160] for file in files for name, reason in file.failures}


def _excuse(entry: Entry, number: int, verdict: Verdict) -> Rule | None:
    rule = cannot_apply(verdict)
    if rule is None and not _passes(entry.fresh, number) and _passes(entry.suite, number):
        return NEWER
    return rule


def _passes(verdicts: dict[int, Verdict], number: int) -> bool:
    return number in verdicts and verdicts[number].outcome == "passed"

"""The engine's version as a security matter: which engine is installed, and which known flaws of it reach a script."""

import importlib.resources
import platform
import tomllib
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, TypeAlias

from manifests.json_value import Json
from sandbox_runtime.engine_version import InstalledEngine

Version: TypeAlias = tuple[int, ...]
Severity: TypeAlias = Literal["critical", "high", "medium", "low", "unrated"]

STALE_DAYS = 90
"""The engine has a release every month, and security releases between them."""

GRAVE: frozenset[str] = frozenset({"critical", "high", "unrated"})
"""Severities of which one that reaches scripts is an error; the others are warnings."""

ABSENT = {
    "aarch64": "this machine is none",
    "api-of-modules": "the host looks nothing up in modules",
    "component-async": "asynchronous components are off",
    "directories": "no directory is opened to the guest",
    "exceptions": "exceptions are off",
    "foreign-wasm": "the one component that runs is our own",
    "fuel": "runs are bounded by time, not by fuel",
    "gc": "garbage collection is off",
    "output-streams": "the guest's standard streams lead nowhere, and it can open no others",
    "several-components": "one component runs alone",
    "sockets": "the guest is denied every address",
    "unusual-build": "the wheel is built with the usual features",
    "wasi-http": "wasi:http is not linked",
    "wasi-preview-1": "only preview 2 is linked",
}
"""What advisories need and an instance of ours does not have; the tests hold it against the engine."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """One flaw. `fixed` is the first sound release of each line, by major version."""

    id: str
    date: date
    severity: Severity
    title: str
    fixed: tuple[Version, ...]
    introduced: Version = (0,)
    needs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def affects(self, engine: Version) -> bool:
        if engine < self.introduced:
            return False
        own_line = [version for version in self.fixed if version[0] == engine[0]]
        return engine < (own_line or [max(self.fixed)])[0]

    def fix_for(self, engine: Version) -> Version:
        """The first sound release after the engine."""
        return min(version for version in self.fixed if version > engine)

    def lacking(self, machine: str) -> tuple[str, ...]:
        """Of what it needs, what is not there on such a machine; then no script reaches it."""
        there = {"aarch64"} if machine.lower() in ("aarch64", "arm64") else set()
        return tuple(need for need in self.needs if need in ABSENT and need not in there)


@dataclass(frozen=True, slots=True)
class Advisories:
    """All that were known on the day `checked`, for engines from `covers` on."""

    checked: date
    covers: Version
    known: tuple[Advisory, ...]


@dataclass(frozen=True)
class EngineReport:
    """What an operator should know of the engine: `errors` want doing now, `warnings` soon, `notes` only knowing."""

    engine: InstalledEngine
    machine: str
    advisories: tuple[Advisory, ...]
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def facts(self) -> Json:
        """`{version, wheel, advisories: [{id, severity, title, reaches_scripts, why_not, fixed_in}]}`."""
        return {
            "version": _text(self.engine.version),
            "wheel": self.engine.wheel,
            "advisories": [
                {
                    "id": advisory.id,
                    "severity": advisory.severity,
                    "title": advisory.title,
                    "reaches_scripts": not advisory.lacking(self.machine),
                    "why_not": [ABSENT[need] for need in advisory.lacking(self.machine)],
                    "fixed_in": _text(advisory.fix_for(self.engine.version)),
                }
                for advisory in self.advisories
            ],
        }


def known_advisories() -> Advisories:
    """The list that came with this version of the portal."""
    text = importlib.resources.files("sandbox_runtime").joinpath("advisories.toml").read_text("utf-8")
    table = tomllib.loads(text)
    known = tuple(_advisory(entry) for entry in table["advisory"])
    return Advisories(table["checked"], version_of(table["covers"]), known)


def report(
    engine: InstalledEngine, advisories: Advisories, today: date, machine: str | None = None
) -> EngineReport:
    """Hold the engine against the list; `machine` is the type of this one unless it is given."""
    machine = machine or platform.machine()
    version = engine.version
    affecting = tuple(advisory for advisory in advisories.known if advisory.affects(version))
    found = EngineReport(engine, machine, affecting)
    name = f"the WebAssembly engine is {_text(version)} (in wasmtime {engine.wheel})"
    if not engine.is_certain:
        found.warnings.append(f"{name} as its package says: the library itself does not tell")
    if version < advisories.covers:
        found.errors.append(
            f"{name}, which is out of support and has advisories that are not listed here. {_upgrade(())}"
        )
    for advisory in affecting:
        if not advisory.lacking(machine):
            told = f"{name}, and scripts can reach {advisory.id} ({advisory.severity}): {advisory.title}"
            kind = found.errors if advisory.severity in GRAVE else found.warnings
            kind.append(f"{told}. {_upgrade(advisory.fix_for(version))}")
    harmless = [advisory for advisory in affecting if advisory.lacking(machine)]
    if harmless:
        fix = max(advisory.fix_for(version) for advisory in harmless)
        # Short, because nothing has to be done; the facts have the reasons.
        found.notes.append(
            f"{name}; {len(harmless)} of its known flaws reach no script here (`check --json` says why), "
            f"and {_text(fix)} has mended them"
        )
    age = (today - advisories.checked).days
    if age > STALE_DAYS:
        found.warnings.append(
            f"the list of the engine's advisories is {age} days old. Upgrade mcp-code-portal, or compare "
            f"{_text(version)} with https://github.com/bytecodealliance/wasmtime/security/advisories yourself"
        )
    return found


def version_of(text: str) -> Version:
    """Of three numbers with points between them."""
    return tuple(int(part) for part in text.split("."))


def _advisory(entry: dict[str, Json]) -> Advisory:
    return Advisory(
        id=entry["id"],
        date=entry["date"],
        severity=entry["severity"],
        title=entry["title"],
        fixed=tuple(sorted(map(version_of, entry["fixed"]))),
        introduced=version_of(entry.get("introduced", "0")),
        needs=tuple(entry.get("needs", ())),
        aliases=tuple(entry.get("aliases", ())),
    )


def _upgrade(fix: Version) -> str:
    least = f"whose engine is {_text(fix)} or newer" if fix else "whose engine is supported"
    return f"Upgrade mcp-code-portal to a release {least}; until then its workers hold nothing that a flaw could reach"


def _text(version: Version) -> str:
    return ".".join(map(str, version))

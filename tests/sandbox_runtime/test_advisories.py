"""The engine is held against the list of its advisories: what affects it, what reaches scripts, and what to do."""

import re
from dataclasses import replace
from datetime import date, timedelta

import pytest
from wasmtime import Store, WasiConfig, WasmtimeError, wat2wasm
from wasmtime.component import Component, Linker

from manifests.grants import Limits
from sandbox_runtime.advisories import (
    ABSENT,
    STALE_DAYS,
    Advisories,
    Advisory,
    EngineReport,
    known_advisories,
    report,
    version_of,
)
from sandbox_runtime.engine import new_engine
from sandbox_runtime.engine_version import InstalledEngine, installed_engine
from sandbox_runtime.features import UNUSED_FEATURES
from sandbox_runtime.sandbox import open_sandbox
from tests.processes import private_mb
from tests.sandbox_runtime.running import EchoPort, where

TODAY = date(2026, 11, 22)
FLAW = Advisory(
    id="GHSA-aaaa-bbbb-cccc",
    date=TODAY,
    severity="high",
    title="a flaw",
    fixed=((36, 0, 9), (48, 0, 3), (50, 0, 2)),
    introduced=(30, 0, 0),
)


def engine(version: str, *, is_certain: bool = True) -> InstalledEngine:
    return InstalledEngine(version_of(version), "99.0.0", is_certain)


def told(version: str, *known: Advisory, today: date = TODAY, is_certain: bool = True) -> EngineReport:
    advisories = Advisories(TODAY, (36, 0, 0), known)
    return report(engine(version, is_certain=is_certain), advisories, today)


@pytest.mark.parametrize(
    ("version", "is_affected"),
    [
        ("29.0.0", False),
        ("30.0.0", True),
        ("36.0.8", True),
        ("36.0.9", False),
        ("36.0.20", False),
        ("47.0.9", True),
        ("48.0.2", True),
        ("48.0.3", False),
        ("49.0.9", True),
        ("50.0.1", True),
        ("50.0.2", False),
        ("51.0.0", False),
    ],
)
def test_each_line_has_its_own_fix_and_lines_without_one_stay_affected(
    version: str, is_affected: bool
) -> None:
    assert FLAW.affects(version_of(version)) is is_affected


@pytest.mark.parametrize(
    ("version", "fix"), [("36.0.1", "36.0.9"), ("49.0.0", "50.0.2"), ("50.0.0", "50.0.2")]
)
def test_flaw_that_scripts_reach_is_an_error_that_names_the_fix(version: str, fix: str) -> None:
    (error,) = told(version, FLAW).errors
    assert FLAW.id in error
    assert fix in error


def test_flaw_of_little_weight_is_a_warning() -> None:
    found = told("50.0.0", replace(FLAW, severity="low"))
    assert (len(found.errors), len(found.warnings)) == (0, 1)


def test_flaw_of_unknown_weight_is_taken_for_a_grave_one() -> None:
    assert len(told("50.0.0", replace(FLAW, severity="unrated")).errors) == 1


def test_flaw_in_what_is_off_is_a_note_that_says_why() -> None:
    found = told("50.0.0", replace(FLAW, needs=("gc",)), replace(FLAW, needs=("gc", "wasi-http")))
    assert (found.errors, found.warnings) == ([], [])
    (note,) = found.notes
    assert len(note) < 200 and "50.0.2" in note
    reasons = [advisory["why_not"] for advisory in found.facts()["advisories"]]
    assert reasons == [[ABSENT["gc"]], [ABSENT["gc"], ABSENT["wasi-http"]]]


def test_flaw_that_needs_something_unheard_of_reaches_scripts() -> None:
    assert len(told("50.0.0", replace(FLAW, needs=("something new",))).errors) == 1


@pytest.mark.parametrize(("machine", "errors"), [("x86_64", 0), ("aarch64", 1), ("arm64", 1)])
def test_flaw_of_another_machine_type_reaches_only_that(machine: str, errors: int) -> None:
    flaw = replace(FLAW, needs=("aarch64",))
    found = report(engine("50.0.0"), Advisories(TODAY, (36, 0, 0), (flaw,)), TODAY, machine)
    assert len(found.errors) == errors


def test_sound_engine_has_nothing_to_tell() -> None:
    found = told("50.0.2", FLAW)
    assert (found.errors, found.warnings, found.advisories) == ([], [], ())


def test_engine_older_than_the_list_is_an_error() -> None:
    assert len(told("35.0.0").errors) == 1


def test_old_list_is_a_warning() -> None:
    assert told("51.0.0", today=TODAY + timedelta(days=STALE_DAYS)).warnings == []
    assert len(told("51.0.0", today=TODAY + timedelta(days=STALE_DAYS + 1)).warnings) == 1


def test_engine_that_does_not_tell_its_version_is_a_warning() -> None:
    assert len(told("51.0.0", is_certain=False).warnings) == 1


def test_installed_engine_says_its_own_version() -> None:
    installed = installed_engine()
    assert installed.is_certain
    assert installed.version[0] == version_of(installed.wheel)[0]


def test_no_known_flaw_of_weight_reaches_scripts_in_the_installed_engine() -> None:
    """A new advisory in the list fails this until the engine is upgraded or the configuration changed."""
    found = report(installed_engine(), known_advisories(), known_advisories().checked)
    assert found.errors == []


def test_list_is_sound() -> None:
    advisories = known_advisories()
    assert len({advisory.id for advisory in advisories.known}) == len(advisories.known)
    for advisory in advisories.known:
        assert re.fullmatch(r"GHSA(-[a-z0-9]{4}){3}", advisory.id)
        assert advisory.date <= advisories.checked
        assert all(len(version) == 3 for version in advisory.fixed)
        assert advisory.introduced < advisory.fixed[0]
        assert set(advisory.needs) <= ABSENT.keys()


def test_features_that_are_called_off_are_off() -> None:
    assert {"wasm_gc", "gc_support"} <= set(UNUSED_FEATURES)
    assert "wasm_exceptions" in UNUSED_FEATURES
    assert {"wasm_component_model_async", "concurrency_support"} <= set(UNUSED_FEATURES)


@pytest.mark.parametrize(
    ("item", "is_linked"),
    [
        ('(import "wasi:http/types@0.2.0" (instance (export "fields" (type (sub resource)))))', False),
        ('(import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func))))', False),
        ('(import "wasi:io/streams@0.2.0" (instance (export "output-stream" (type (sub resource)))))', True),
    ],
)
def test_interfaces_that_are_called_absent_are_not_linked(item: str, is_linked: bool) -> None:
    engine = new_engine()
    linker, store = Linker(engine), Store(engine)
    linker.add_wasip2()
    store.set_wasi(WasiConfig())
    component = Component(engine, wat2wasm(f"(component {item})"))
    if is_linked:
        linker.instantiate(store, component)
    else:
        with pytest.raises(WasmtimeError):
            linker.instantiate(store, component)


@pytest.mark.anyio
async def test_writing_nothing_to_the_standard_streams_costs_the_worker_no_memory() -> None:
    """GHSA-5m8g-xhq4-4h93 is about streams that the system's own standard streams would be."""

    async def after_writing(times: int) -> float:
        script = f"import os\nfor i in range({times}):\n    os.write(1, b'')\n    os.write(2, b'')"
        async with sandbox.run(Limits(), where) as run:
            await run.prepare(script, ())
            assert (await run.execute({}, EchoPort())).error is None
            return private_mb(run.worker_pid or 0)

    async with open_sandbox(workers=1, progress=print) as sandbox:
        few, many = await after_writing(2_000), await after_writing(200_000)
    assert many - few < 4

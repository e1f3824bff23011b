"""What CPython does not need of WebAssembly is off: code that uses it does not get past the engine."""

import pytest
import wasmtime._ffi as ffi
from wasmtime import Config, Engine, Module, WasmtimeError, wat2wasm
from wasmtime.component import Component

from sandbox_runtime.engine import UNUSED_FEATURES, new_engine

MODULES = {
    "wasm_threads": "(memory 1 2 shared) (func (drop (i32.atomic.load (i32.const 0))))",
    "wasm_tail_call": "(func $f (return_call $f))",
    "wasm_simd": "(func (result v128) (v128.const i32x4 0 0 0 0))",
    "wasm_relaxed_simd": "(func (param v128 v128) (result v128) "
    "(i8x16.relaxed_swizzle (local.get 0) (local.get 1)))",
    "wasm_multi_value": "(func (result i32 i32) (i32.const 0) (i32.const 0))",
    "wasm_multi_memory": "(memory 1) (memory 1)",
    "wasm_memory64": "(memory i64 1)",
    "wasm_exceptions": "(tag $t) (func (throw $t))",
    "wasm_function_references": "(type $t (func)) (func (param (ref $t)) (call_ref $t (local.get 0)))",
    "wasm_gc": "(type $s (struct (field i32))) (func (drop (struct.new $s (i32.const 1))))",
    "gc_support": "(func (param externref))",
    "wasm_wide_arithmetic": "(func (param i64 i64 i64 i64) (result i64 i64) "
    "(i64.add128 (local.get 0) (local.get 1) (local.get 2) (local.get 3)))",
    "wasm_custom_page_sizes": "(memory 1 (pagesize 1))",
    "wasm_stack_switching": "(type $f (func)) (type $c (cont $f)) "
    "(func (param (ref $f)) (drop (cont.new $c (local.get 0))))",
    "wasm_compact_imports": '(import "a" (item "b" (func)) (item "c" (func)))',
}
LIFTED = '(core module $m (func (export "f"))) (core instance $i (instantiate $m)) '
COMPONENTS = {
    "wasm_component_model_map": "(type (map string u32))",
    "wasm_component_model_implements": '(import "a" (implements "a:b/c") (instance))',
    "wasm_component_model_async": "(type $s (stream u8)) (core func (canon stream.new $s))",
    "wasm_component_model_async_stackful": LIFTED
    + '(func (export "f") async (canon lift (core func $i "f") async))',
    "wasm_component_model_more_async_builtins": "(core func (canon subtask.cancel async))",
}
UNSEEN = {
    "shared_memory": "comes with threads",
    "concurrency_support": "comes with async components",
    "wasm_branch_hinting": "is a comment for the compiler, which ignores it when off",
    "wasm_component_model_accessors": "has no text form in this wheel",
    "wasm_component_model_canonical_names": "has no text form in this wheel",
}
"""Features that no text shows by itself, and why."""

ASYNC_BUILTINS = [
    "(type $s (future u8)) (core func (canon future.new $s))",
    "(core func (canon task.return))",
    "(core func (canon waitable-set.new))",
    "(core func (canon backpressure.inc))",
    "(core func (canon subtask.drop))",
    "(core func (canon thread.yield))",
]


def compiled(engine: Engine, text: str, *, is_component: bool) -> None:
    if is_component:
        Component(engine, wat2wasm(f"(component {text})"))
    else:
        Module(engine, wat2wasm(f"(module {text})"))


def engine_with_everything() -> Engine:
    config = Config()
    for feature in (*MODULES, *COMPONENTS):
        getattr(ffi, f"wasmtime_config_{feature}_set")(config.ptr(), True)
    return Engine(config)


@pytest.mark.parametrize("feature", [*MODULES, *COMPONENTS])
def test_code_that_uses_an_unused_feature_is_refused(feature: str) -> None:
    is_component = feature in COMPONENTS
    text = COMPONENTS[feature] if is_component else MODULES[feature]
    compiled(engine_with_everything(), text, is_component=is_component)
    with pytest.raises(WasmtimeError):
        compiled(new_engine(), text, is_component=is_component)


@pytest.mark.parametrize("text", ASYNC_BUILTINS)
def test_no_builtin_of_asynchronous_components_is_there(text: str) -> None:
    compiled(engine_with_everything(), text, is_component=True)
    with pytest.raises(WasmtimeError):
        compiled(new_engine(), text, is_component=True)


def test_every_feature_that_is_off_is_shown_or_says_why_not() -> None:
    assert {*MODULES, *COMPONENTS, *UNSEEN} == set(UNUSED_FEATURES)


def test_no_feature_that_could_be_off_was_forgotten() -> None:
    prefix, suffix = "wasmtime_config_wasm_", "_set"
    offered = {
        name.removeprefix("wasmtime_config_").removesuffix(suffix)
        for name in dir(ffi)
        if name.startswith(prefix) and name.endswith(suffix)
    }
    needed = {"wasm_bulk_memory", "wasm_reference_types", "wasm_component_model"}
    of_others = {"wasm_relaxed_simd_deterministic"}
    assert offered - set(UNUSED_FEATURES) == needed | of_others


def test_what_cpython_needs_is_on() -> None:
    bulk = "(memory 1) (func (memory.fill (i32.const 0) (i32.const 0) (i32.const 0)))"
    tables = "(table 1 funcref) (table 1 funcref) (func (drop (table.size 1)))"
    for text in (bulk, tables):
        compiled(new_engine(), text, is_component=False)
    compiled(new_engine(), LIFTED + '(func (export "f") (canon lift (core func $i "f")))', is_component=True)

"""WebAssembly features that CPython does not need are off: the engine refuses code that uses them."""

import pytest
import wasmtime._ffi as ffi
from wasmtime import Config, Engine, Module, WasmtimeError, wat2wasm

from sandbox_runtime.worker.engine import new_engine

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


def engine_with_everything() -> Engine:
    config = Config()
    for feature in MODULES:
        getattr(ffi, f"wasmtime_config_{feature}_set")(config.ptr(), True)
    return Engine(config)


@pytest.mark.parametrize("feature", MODULES)
def test_code_that_uses_an_unused_feature_is_refused(feature: str) -> None:
    module = wat2wasm(f"(module {MODULES[feature]})")
    Module(engine_with_everything(), module)
    with pytest.raises(WasmtimeError):
        Module(new_engine(), module)

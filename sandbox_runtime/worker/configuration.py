"""The engine's settings, for code that must not import the engine."""

from typing import Final

MAX_WASM_STACK: Final = 1 << 20

NEEDED_FEATURES: Final = ("wasm_bulk_memory", "wasm_component_model", "wasm_reference_types")
"""The WebAssembly features that CPython needs. All others are off, because most advisories are about them."""

CONFIGURATION: Final = f"cranelift epoch stack={MAX_WASM_STACK} {' '.join(NEEDED_FEATURES)}"
"""Identifies the configuration. Code that was compiled with another one is not loaded."""

NOT_WRITTEN: Final = 74
"""Exit status for a component that compiled but could not be written; EX_IOERR of sysexits.h."""

"""The code of worker processes: the wasm engine with one guest, and the lock-down."""

"""What runs in a worker process: the wasm engine around one guest, and the lock-down."""

"""Runs untrusted Python in a WebAssembly sandbox; whoever runs it supplies the port for its calls."""

"""Runs untrusted scripts in a WebAssembly sandbox. The caller supplies the port for a script's calls."""

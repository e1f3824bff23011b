"""Runs inside the sandbox, on CPython 3.14; imports the standard library only."""

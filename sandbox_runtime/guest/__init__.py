"""Runs inside the sandbox, on CPython 3.14. Imports the standard library only."""

"""Checks a script against the stubs before anything runs."""

"""Finds the functions that fit a query."""

"""Finds the functions that match a query."""

"""Definitions of tools held against those that the operator accepted, and against what they should not say."""

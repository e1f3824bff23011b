"""Composition, serving, reload and replicas."""

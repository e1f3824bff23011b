"""Fits an answer into a token budget."""

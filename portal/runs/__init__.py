"""Runs that survive their process: the store, the journal, waiting, and what people do with them."""

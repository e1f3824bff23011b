"""Runs of scripts, which survive their process: execution, journal, waiting, and what people do with them."""

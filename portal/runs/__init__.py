"""Durable runs of scripts: execution, journal, waiting, and what people do with runs."""

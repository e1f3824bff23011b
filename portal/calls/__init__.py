"""The way of one call: its steps (`pipeline.py`), and what answers it."""

"""Programs that answer a question with a number; run them as `python -m benchmarks.NAME`."""

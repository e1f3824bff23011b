"""Programs that the tests start: servers that behave badly on purpose, and clients of other makers."""

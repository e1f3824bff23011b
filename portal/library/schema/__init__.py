"""JSON Schema as upstreams send it: made sound, merged, explained in words, and values held against it."""

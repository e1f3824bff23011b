"""What an operator writes and what it permits: the manifest, its limits, names and decisions."""

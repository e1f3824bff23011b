"""The operator's manifest and what it permits: its sections, limits, names and decisions."""

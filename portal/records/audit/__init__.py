"""A tamper-evident log of runs and calls: missing and altered lines are detected."""

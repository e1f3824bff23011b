"""Static analysis of a script's syntax tree."""

"""What a script's syntax tree tells before it runs."""

"""What was run and called, written down so that a line that is missing or altered is found."""

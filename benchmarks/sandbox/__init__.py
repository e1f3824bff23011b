"""What scripts cost in the sandbox, beside other ones."""

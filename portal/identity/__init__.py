"""Who calls, how people sign in, and who decides."""

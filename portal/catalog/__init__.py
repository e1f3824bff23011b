"""What can be called now: the library, its search, the check of scripts, and what is granted."""

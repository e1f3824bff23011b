"""The functions that can be called now: the library, its search, the check of scripts, and the grants."""

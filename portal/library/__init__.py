"""All functions and their types, which `docs_search` finds and scripts import."""

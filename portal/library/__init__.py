"""All functions and their types: what `docs_search` searches and scripts import."""

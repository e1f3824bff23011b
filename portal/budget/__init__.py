"""Makes an answer fit the tokens its reader can afford."""

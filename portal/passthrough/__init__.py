"""Everything between the portal's clients and its upstreams besides calls and their results."""

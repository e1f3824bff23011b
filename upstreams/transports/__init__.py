"""How messages go to an upstream: stdio, and HTTP in both of its transports."""

"""The transports to an upstream: stdio, Streamable HTTP, and HTTP+SSE."""

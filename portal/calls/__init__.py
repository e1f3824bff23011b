"""The steps of one call: middleware, fallback, authorize, ask, journal, send."""

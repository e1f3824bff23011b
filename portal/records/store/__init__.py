"""Stores runs, logins and what replicas share, in SQLite or Postgres."""

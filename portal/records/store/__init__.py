"""Where runs, logins and what replicas share are kept: SQLite or Postgres."""

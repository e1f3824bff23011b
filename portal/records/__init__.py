"""Records: the store, the audit log, the ledger of a run, logs and telemetry."""

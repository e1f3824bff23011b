"""Spans and metrics of the portal, by OpenTelemetry (docs/telemetry.md)."""

"""What the portal tells operators about itself: spans and numbers, by OpenTelemetry (docs/telemetry.md)."""

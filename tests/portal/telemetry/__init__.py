"""Tests of portal.telemetry."""

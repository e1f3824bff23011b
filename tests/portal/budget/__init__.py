"""Tests of portal.budget."""

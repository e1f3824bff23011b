"""Tests of portal.search."""

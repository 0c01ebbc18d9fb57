"""Tests that run real jobs."""

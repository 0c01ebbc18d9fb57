"""Ops run in the wrong place."""

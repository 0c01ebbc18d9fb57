"""Copies between host and device hold up the step."""

"""Placement: which device the step runs on."""

"""Checks of what tracing and compiling cost."""

"""The step waits for data."""

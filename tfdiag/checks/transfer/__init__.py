"""The step waits for copies."""

"""Makes suggested changes in copies of the caller's dataset, and compares the copies with the original."""

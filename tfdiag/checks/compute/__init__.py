"""The device computes."""

"""The device: what keeps it from its full speed."""

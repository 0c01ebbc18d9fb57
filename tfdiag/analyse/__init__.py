"""`Measurements` become an `Analysis`: pure functions over numbers."""

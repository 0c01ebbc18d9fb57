"""What runs inside the caller's own training: the callback and its log."""

"""Python around the step."""

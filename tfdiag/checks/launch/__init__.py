"""The step is mostly dispatch."""

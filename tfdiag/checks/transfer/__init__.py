"""Transfer: what crosses the bus."""

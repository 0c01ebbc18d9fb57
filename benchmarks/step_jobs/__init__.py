"""Jobs with a planted cause outside of the input, and look-alikes that have none."""

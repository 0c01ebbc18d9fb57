"""A live run becomes `Measurements`: hooks, threads and clocks, all of them taken off again."""

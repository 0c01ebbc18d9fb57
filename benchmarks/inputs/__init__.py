"""Jobs whose input is slow for one known reason, and jobs whose input only looks slow."""

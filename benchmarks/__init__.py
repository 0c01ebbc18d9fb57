"""The numbers that tfdiag promises, each measured by a command: `python -m benchmarks.<name>`."""

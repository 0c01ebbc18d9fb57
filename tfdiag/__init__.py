"""Says why a Keras training step is slow, and what to change."""

from tfdiag.version import __version__

__all__ = ["__version__"]

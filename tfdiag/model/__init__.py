"""The frozen dataclasses that travel between the stages; standard library only."""

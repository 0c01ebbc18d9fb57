"""The device itself, and how much of it is used."""

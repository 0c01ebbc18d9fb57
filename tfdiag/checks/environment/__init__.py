"""Checks on the topic environment."""

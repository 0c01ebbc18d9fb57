"""Tests of tfdiag."""

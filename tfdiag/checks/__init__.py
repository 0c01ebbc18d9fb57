"""An `Analysis` becomes findings: one check, one file, one id."""

"""Findings and suggestions become a report: ranking, building, the JSON form and its schema."""

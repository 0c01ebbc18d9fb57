"""What is said of an error."""

from __future__ import annotations

from tfdiag.collect.causes import root_cause


def test_bold_is_for_terminals_only() -> None:
    """Keras puts escape sequences into its messages; a log would show them as they are."""
    error = ValueError("Exception encountered.\n\n\x1b[1mInvalid input shape\x1b[0m\n\x1b[31;1mred\x1b[0m")
    assert root_cause(error) == "ValueError: Exception encountered. Invalid input shape red"

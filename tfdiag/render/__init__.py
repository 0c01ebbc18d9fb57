"""A report becomes text: one file for each form."""

"""What a suggestion does: predict its gain, and write the code for the caller."""

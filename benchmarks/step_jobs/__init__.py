"""Jobs with one planted cause each beside the input, and healthy ones that look suspicious."""

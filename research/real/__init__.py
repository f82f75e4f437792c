"""Real data that come with packages: our answers beside those of plain NumPy and of the tools that people use now."""

"""Grid signals of a live service: where prices and intensities come from, and what stands in for late ones."""

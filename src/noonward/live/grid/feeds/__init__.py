"""Feeds: publishers of prices and intensities that are asked over HTTP, one small class each."""

"""Packaged scenarios, and how scenario files are read."""

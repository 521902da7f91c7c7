"""Formats of job logs, one module per system."""

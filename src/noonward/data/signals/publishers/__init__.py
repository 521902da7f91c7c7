"""Formats of publishers' signal files, one module per publisher."""

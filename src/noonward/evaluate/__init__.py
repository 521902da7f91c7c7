"""Comparisons, statistics, figures and reports, made from run records."""

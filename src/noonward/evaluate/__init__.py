"""Comparisons, statistics, figures and reports, made from run records; benchmarks and the conformance check."""

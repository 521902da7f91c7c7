"""Signals, jobs and scenarios: loaders for files, generators calibrated on real traces, packaged scenarios."""

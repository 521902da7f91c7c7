"""Frozen nouns: fleet, power, network, signals, jobs, economics, scenario and environment."""

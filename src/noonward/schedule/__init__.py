"""Schedulers: rules of both protocols, the bandit, the registry and the public conformance check."""

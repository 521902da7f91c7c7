"""Frozen nouns that all settings share: network, signals, economics, limits."""

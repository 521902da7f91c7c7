"""Schedulers of the cluster settings: rules, routing, booking, bid prices, trained policies."""

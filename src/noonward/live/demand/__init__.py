"""Grid events and meters of a live service."""

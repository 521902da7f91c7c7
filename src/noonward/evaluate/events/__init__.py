"""What a fleet can give up in grid events: paired runs with and without events, what they cost, and the least loss."""

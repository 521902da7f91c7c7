"""Image generation on edge servers for real: worker processes, gangs, a service, and its page."""

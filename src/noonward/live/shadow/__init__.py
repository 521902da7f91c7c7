"""Shadow: jobs that clusters run without the service, what became of them, and what the service would have done."""

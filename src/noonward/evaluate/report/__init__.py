"""Reports and figures of a comparison, made from run records."""

"""Image tasks: the paper's arrivals, and a generator calibrated on a real trace."""

"""Jobs: files, and calibrated generators."""

"""Hourly prices and carbon intensities: files, and a calibrated generator."""

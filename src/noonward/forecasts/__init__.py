"""Forecasts of hourly signals: persistence, regression, a learned net, and how they are issued."""

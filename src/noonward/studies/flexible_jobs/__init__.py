"""Jobs that bend, held against what others published: GAIA, CarbonScaler, a field test of Emerald AI."""

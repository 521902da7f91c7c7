"""CHSAC-AF (Ma et al.): training jobs on heterogeneous GPU sites with DVFS."""

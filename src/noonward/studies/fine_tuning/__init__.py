"""MASAC (Zhang et al.): fine-tuning jobs over regional data centers."""

"""Executors: one small class per kind of cluster, behind one protocol."""

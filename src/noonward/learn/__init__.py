"""Learned policies: nets, replay, algorithms, trainer, checkpoints. The only package that imports torch."""

"""Learned policies: nets, replay, algorithms (one file each), trainer, checkpoints. Alone in importing torch."""

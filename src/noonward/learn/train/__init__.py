"""How training runs: config, trainer, curves, imitation, export."""

"""How training runs: config, trainer, curves, export."""

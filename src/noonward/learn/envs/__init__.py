"""The settings as Gymnasium and PettingZoo environments."""

"""The edge engine: gangs of servers that generate images, event by event or tick by tick."""

"""The live service: takes jobs, decides with the schedulers of the simulation, hands jobs over to clusters."""

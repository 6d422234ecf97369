"""drc-race, the default where the follower is a solver: its method, descents, curve model."""

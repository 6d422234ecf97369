"""trust-region, the default where the follower is a solver: its method, regions, surface model."""

"""drc-plus, the default: its method, the leader's view, its follower solver, its fallback."""

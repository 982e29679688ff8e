"""How pieces of runs travel between the workers of a cluster."""

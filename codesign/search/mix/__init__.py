"""One hardware for several workloads: plans exchanged, priced by duals, bounded together."""

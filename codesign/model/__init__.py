"""The model of a cluster and its work: hardware, networks, workloads, and what a scenario costs."""

"""Networks: topologies, fabrics, collective operations."""

"""Branch and bound over plans: cuts from an oracle, Lagrangian bounds, nodes that are relaxed, split and pruned."""

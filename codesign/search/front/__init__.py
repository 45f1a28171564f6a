"""Fronts by the epsilon-constraint method, every design with a bound, and what no front can reach."""

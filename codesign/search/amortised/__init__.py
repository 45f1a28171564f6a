"""A network trained on studies of a family answers at once."""

"""Other people's searches over one vectorised evaluator."""

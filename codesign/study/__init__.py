"""What is asked of a model: variables of a design space, plans that are feasible, objective and limits."""

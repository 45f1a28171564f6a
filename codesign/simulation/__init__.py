"""Simulations that closed forms are compared with: requests on a serving engine. They know no model."""

"""Foundations that know nothing of clusters: leaves of the tree, units, smooth maxima, errors, files and text."""

"""Descents along gradients: over the hardware of a plan, over relaxed plans."""

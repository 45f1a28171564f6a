"""Every plan at every level, in blocks, with the best, the front and histograms of all."""

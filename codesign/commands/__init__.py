"""What the command line does: optimise, sweep, price one design; and what it shows."""

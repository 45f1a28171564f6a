"""What the model is held against: measurements, calibration, validation, published claims."""

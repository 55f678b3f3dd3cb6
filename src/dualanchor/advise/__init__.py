"""Advice: a plan before a run, a calibration beside it, a certificate after it."""

"""Inference: what was asked of the samples, units that are resampled, and errors from them."""

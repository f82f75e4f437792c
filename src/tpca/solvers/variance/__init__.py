"""Components of variation: rank-one patterns whose amplitudes differ from sample to sample."""

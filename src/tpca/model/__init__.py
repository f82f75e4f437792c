"""The spiked tensor model: truth, loss, noise laws, sampling, and the paper's bounds."""

from tpca.model.sampling import NOISE_LAWS, Samples
from tpca.model.spiked import SpikedTensor, cor

__all__ = ["NOISE_LAWS", "Samples", "SpikedTensor", "cor"]

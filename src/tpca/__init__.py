"""tpca: tensor PCA on streams."""

from tpca.model import SpikedTensor

__all__ = ["SpikedTensor"]

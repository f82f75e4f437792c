r"""The normalised ascent step (paper, Eq. update-SGA and update-SGA-odd): one function for every block and parity.

.. math::
    W \leftarrow \Big(1 + \frac{\eta R}{\|W\|}\Big) W + \eta \|W\| \nabla R, \qquad R = \langle\nabla R, W\rangle

This is gradient ascent on :math:`\|W\| R(W)`, which is 2-homogeneous: the direction :math:`W/\|W\|` evolves in the same
way whatever the scale of W.  A vector block is a d_1 × 1 matrix here, so odd order needs nothing of its own.
"""

from __future__ import annotations

import numpy as np

from tpca.tensors.blocks import Array


def ascent_step(blocks: Array, gradients: Array, step_size: float, signs: Array | None = None) -> Array:
    """One step of every replica of one block: ``blocks`` and ``gradients`` have shape ``(R, *block shape)``.

    ``signs`` (R,) multiplies the reward, +1 or −1: Phase III runs from both.
    """
    axes = (slice(None),) + (None,) * (blocks.ndim - 1)
    flat_blocks, flat_gradients = blocks.reshape(len(blocks), -1), gradients.reshape(len(blocks), -1)
    norms = np.sqrt(np.einsum("ri,ri->r", flat_blocks, flat_blocks))
    rewards = np.einsum("ri,ri->r", flat_gradients, flat_blocks)
    etas = step_size if signs is None else step_size * signs
    keep: Array = 1 + etas * rewards / norms
    grow: Array = etas * norms
    return keep[axes] * blocks + grow[axes] * gradients


def step_rewards(blocks: Array, gradients: Array) -> Array:
    """The rewards (R,) of the normalised replicas: ⟨∇R, W⟩/‖W‖, for R is linear in W."""
    flat_blocks, flat_gradients = blocks.reshape(len(blocks), -1), gradients.reshape(len(blocks), -1)
    norms = np.sqrt(np.einsum("ri,ri->r", flat_blocks, flat_blocks))
    rewards: Array = np.einsum("ri,ri->r", flat_gradients, flat_blocks) / norms
    return rewards


def normalise(blocks: Array) -> Array:
    """Every replica of a block divided by its Frobenius norm."""
    axes = tuple(range(1, blocks.ndim))
    scaled: Array = blocks / np.sqrt(np.sum(blocks**2, axis=axes, keepdims=True))
    return scaled

"""Experiments about tpca: baselines, the exact-law simulation, studies, tables.  Not in the wheel; needs a checkout.

Nothing in ``src/`` imports it.  ``python -m research`` from the root of the repository lists its commands.
"""

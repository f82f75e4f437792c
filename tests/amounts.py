"""How much of a test runs in ``make test``, and how much more in ``make test-slow``."""

import pytest


def few_or_many(few, many):
    """A test with an argument ``runs``: few runs by default, which see a gross error; many where slow tests are run."""
    return pytest.mark.parametrize("runs", [few, pytest.param(many, marks=pytest.mark.slow)])

"""How much of a test runs in ``make test`` and how much in ``make test-slow``; how much memory something takes."""

import tracemalloc

import pytest


def few_or_many(few, many):
    """A test with an argument ``runs``: few runs by default, which see a gross error; many where slow tests are run."""
    return pytest.mark.parametrize("runs", [few, pytest.param(many, marks=pytest.mark.slow)])


class Traced:
    """The most that was allocated inside, and not before."""

    def __enter__(self):
        tracemalloc.start()
        self.before = tracemalloc.get_traced_memory()[0]
        return self

    @property
    def held(self):
        """What is allocated now, and was not before."""
        return tracemalloc.get_traced_memory()[0] - self.before

    def __exit__(self, *_):
        self.peak = tracemalloc.get_traced_memory()[1] - self.before
        tracemalloc.stop()

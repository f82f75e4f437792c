"""A process that is killed at every step of writing, without a process."""

import itertools


class KilledError(BaseException):
    """Stands in for a process that is gone: no clean-up of the code under test may run after it."""


def kills(monkeypatch, tmp_path, prepare, work, steps, least):
    """Do ``work(folder)`` again and again, killed before or after its first, second, ... step; yields every folder.

    ``steps`` are the functions at which it can be killed; there must be more than ``least`` calls of them.
    """
    for moment, after in itertools.product(range(200), (False, True)):
        folder, done = tmp_path / f"{moment} {after}", 0
        prepare(folder)

        def counting(call, moment=moment, after=after):
            def counted(*args, **options):
                nonlocal done
                if done > moment:  # dead already: whatever is still tried does nothing
                    raise KilledError
                done += 1
                if done <= moment:
                    return call(*args, **options)
                if after:
                    call(*args, **options)
                done += 1
                raise KilledError

            return counted

        with monkeypatch.context() as patch:
            for owner, name in steps:
                patch.setattr(owner, name, counting(getattr(owner, name)))
            try:
                work(folder)
                finished = True
            except KilledError:
                finished = False
        yield folder
        if finished:
            assert moment > least  # there were steps to be killed at
            return
    raise AssertionError("the end of writing was never reached")

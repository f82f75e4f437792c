"""Fits that are killed again and again, at any moment, and gone on with: the bytes must be those of the undisturbed."""

import signal
from collections import Counter

from attack.cases import CASES, Part, emptied, every_round, resuming
from attack.forks import INTERRUPTED, Fork, command

MAX_SIGNALS = 6  # signals to one fit; then it is let be
ASKING = 0.2  # share of signals that only ask to stop
STOPPED = (*INTERRUPTED, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)


class Killed(Part):
    """A trial is one fit to its end."""

    def trial(self, number, rng):
        case, out, sent = list(CASES)[number % len(CASES)], f"killed {number}", Counter()
        with emptied(self.folder / out):
            while True:
                ended = self._once(case, out, rng, sent)
                if ended.hung or ended.code not in STOPPED:
                    return case, [(self.undisturbed.judge(case, ended, self.folder / out), ended.output)], sent

    def _once(self, case, out, rng, sent):
        """Begin, or go on; unless it was stopped often enough, send a signal some time before the end."""
        more, (_, _, seconds) = resuming(case) if sent else (), self.undisturbed(case)
        fork = Fork(command("fit", *CASES[case], "--out", out, *every_round(case), *more), self.folder)
        if sent.total() == MAX_SIGNALS:
            return fork.end()
        fork.wait(seconds * rng.uniform(0, 1.1))
        asking = rng.random() < ASKING
        fork.send(int(rng.choice([signal.SIGINT, signal.SIGTERM])) if asking else signal.SIGKILL)
        ended = fork.end()
        if ended.code in STOPPED:
            sent["asked to stop" if asking else "kills"] += 1
        return ended

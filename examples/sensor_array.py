"""An alarm that may look all the time: a grid of accelerometers on a machine that never stops.

Every turn of the shaft gives one sample, row × column × angle.  A worn tooth hits once a turn and makes the plate ring
in one of its shapes; every single turn drowns in noise and in resonances of random phase.  The alarm should come as
early as possible, and on a healthy machine it should stay silent however long somebody watches.

Resonances are noise that is far stronger along a few directions than along all others.  Nothing is done about them: the
evidence needs no model of the noise, only that without a signal a turn is as likely as its negative.

    python examples/sensor_array.py [--out array.png] [--quick]
"""

import argparse
import math
from pathlib import Path

import numpy as np
from scipy.stats import t as student

import tpca
from tpca.report.style import COLOURS, drawing

ROWS, COLUMNS, ANGLES = 6, 8, 48
STRENGTH, TURNS, LOOK = 1.0, 1500, 10  # of the ringing in units of the noise; watched for; a rival looks every ten
SHAPES = [(1, 1), (2, 1), (1, 2)]  # resonances of the healthy plate


def shape(m, n):
    """The (m, n) shape of a plate held at its edges: a product of two sines, so of rank one."""
    rows, columns = (np.sin(k * math.pi * np.arange(1, d + 1) / (d + 1)) for k, d in ((m, ROWS), (n, COLUMNS)))
    return rows / np.linalg.norm(rows), columns / np.linalg.norm(columns)


def defect():
    """Shape (2, 3) of the plate, struck at 120 degrees and ringing down."""
    angle = np.arange(ANGLES) * 2 * math.pi / ANGLES
    since = (angle - 2 * math.pi / 3) % (2 * math.pi)
    ringing = np.exp(-since / 0.7) * np.sin(6 * since)
    return tpca.SpikedTensor((*shape(2, 3), ringing / np.linalg.norm(ringing)), STRENGTH)


def turns(signal, seed, together=25):
    """Endless batches (turns, row, column, angle), made when they are read."""
    rng = np.random.default_rng(seed)
    angle = np.arange(ANGLES) * 2 * math.pi / ANGLES
    plates = np.stack([np.outer(*shape(*mn)) for mn in SHAPES])
    while True:
        phase, size = (
            rng.uniform(0, 2 * math.pi, (together, len(SHAPES), 1)),
            rng.exponential(1.0, (together, len(SHAPES), 1)),
        )
        hum = size * np.sin(np.array([3, 5, 7])[:, None] * angle + phase)
        yield signal + np.einsum("tsa,sij->tija", hum, plates) + rng.standard_normal((together, ROWS, COLUMNS, ANGLES))


def watch(batches, seed):
    """The race, until it is sure and accurate, or the watch is over."""
    stream = tpca.open_stream(batches, items="batches")
    return tpca.RaceSolver(random_state=seed, memory_limit="1MB", max_samples=TURNS, tol=0.3).run(stream)


def alarm(estimate):
    return next((h["samples"] for h in estimate.history if h["found"]), None)


def peeking(batches):
    """What is often done: average, look every ten turns at the largest entry, correct for the number of entries."""
    total, squares, count = 0.0, 0.0, 0
    for batch in batches:
        total, squares, count = total + batch.sum(axis=0), squares + (batch**2).sum(axis=0), count + len(batch)
        mean = total / count
        spread = np.sqrt((squares / count - mean**2) / (count - 1))
        limit = student.isf(0.05 / 2 / (ROWS * COLUMNS * ANGLES), count - 1)
        if count >= 50 and np.abs(mean / spread).max() > limit:
            return count
        if count >= TURNS:
            break
    return None


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("sensor_array.png"))
    parser.add_argument("--quick", action="store_true", help="fewer machines")
    options = parser.parse_args(arguments)
    machines = 2 if options.quick else 20

    truth = defect()
    broken, healthy, rival, rival_false = [], [], [], 0
    for seed in range(machines):
        broken.append(watch(turns(truth.signal(), seed), seed))
        healthy.append(watch(turns(0.0, 1000 + seed), seed))
        rival.append(peeking(turns(truth.signal(), seed, LOOK)))
        rival_false += peeking(turns(0.0, 1000 + seed, LOOK)) is not None
    alarms = [alarm(r) for r in broken]
    false = sum(alarm(r) is not None for r in healthy)

    found = [a for a in alarms if a is not None]
    late = [a for a in rival if a is not None]
    print(f"{machines} broken machines, alarm within {TURNS} turns: race {len(found)}, peeking {len(late)}")
    medians = [np.median(each or [math.nan]) for each in (found, late)]
    print(f"  median turn of the alarm: race {medians[0]:.0f}, peeking {medians[1]:.0f}")
    print(f"{machines} healthy machines, false alarms: race {false} (promised: at most 5 %), peeking {rival_false}")
    best = broken[0]
    print(f"first machine: {best.verdict}. {best.stop_reason}")
    print(f"  overlaps {np.round(truth.overlaps(best.vectors), 3)}, state {best.state_bytes:,} bytes")
    draw(truth, broken, healthy, options.out)
    return {"truth": truth, "broken": broken, "healthy": healthy, "false": false, "rival_false": rival_false}


def evidence(estimate):
    rows = [(h["samples"], h["log_evidence"] / math.log(10)) for h in estimate.history if "log_evidence" in h]
    return np.array(rows).T


def draw(truth, broken, healthy, out):
    best = broken[0]
    with drawing() as plt:
        figure, axes = plt.subplots(1, 3, figsize=(12, 3.5), layout="constrained", width_ratios=(1.5, 1, 1.3))
        for group, colour, style, label in (
            (healthy, COLOURS[1], "--", "healthy"),
            (broken, COLOURS[0], "-", "worn tooth"),
        ):
            for i, estimate in enumerate(group[:10]):
                axes[0].plot(
                    *evidence(estimate), color=colour, ls=style, lw=1, alpha=0.8, label=label if i == 0 else None
                )
        marks = [(alarm(r), np.interp(alarm(r), *evidence(r))) for r in broken[:10] if alarm(r)]
        axes[0].scatter(*np.array(marks).T, color=COLOURS[0], marker="v", s=40, zorder=3, label="alarm")
        axes[0].set(
            xlabel="turns of the shaft",
            ylabel="evidence (powers of ten)",
            xscale="log",
            ylim=(-1.5, 15),
            title="ten machines of each kind",
        )
        axes[0].legend(loc="upper left")
        rows, columns, ringing = best.vectors
        plate = np.outer(rows, columns)
        plate *= np.sign(plate.ravel() @ np.outer(*truth.vectors[:2]).ravel())
        limit = np.abs(plate).max()
        shown = axes[1].imshow(plate, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes[1].set(title="shape of the plate, found", xlabel="column of the grid", ylabel="row of the grid")
        axes[1].grid(False)
        figure.colorbar(shown, ax=axes[1], shrink=0.7, label="weight")
        angle = np.arange(ANGLES) * 360 / ANGLES
        sign = np.sign(ringing @ truth.vectors[2])
        axes[2].fill_between(
            angle, *(sign * ringing + s * best.standard_errors[2] for s in (-2, 2)), color=COLOURS[0], alpha=0.25
        )
        axes[2].plot(angle, sign * ringing, color=COLOURS[0], label="found ± 2 errors")
        axes[2].plot(angle, truth.vectors[2], color=COLOURS[1], ls="--", label="planted")
        axes[2].axvline(120, color="0.5", lw=1, ls=":")
        axes[2].set(
            xlabel="angle of the shaft (degrees)", ylabel="weight", xticks=range(0, 361, 60), title="when in the turn"
        )
        axes[2].legend()
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=110, transparent=True)


if __name__ == "__main__":
    main()

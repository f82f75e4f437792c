"""The tables of docs/reliability.md, from the counts that ``make attack`` has stored."""

from collections import Counter

ROWS = {
    "kills": "fits killed at any moment and gone on with ({kills:,} × SIGKILL, {asked to stop:,} × SIGTERM or Ctrl-C)",
    "files": "damaged files of {cases} kinds",
    "checkpoints": "damaged checkpoints, gone on with",
    "disks": "disks that are full ({full:,}) or read-only ({read-only:,}), then not any more",
    "clusters": "Dask: workers killed ({workers killed:,}), stopped for a while ({workers stopped:,}), paused "
    "({workers paused:,}), all paused ({all workers paused:,}); schedulers killed ({schedulers killed:,}), "
    "commands killed and gone on with ({commands killed:,})",
    "readers": "results read while another fit's is written there",
    "replaced": "Dask: all workers killed at once, and others come",
    "codecs": "Zarr stores that unpack to far more than they declare, or have codecs that are not read",
    "interrupted": "batches handed in (`partial_fit`), with Ctrl-C or another exception at any moment",
    "odd": "commands with names that are not UTF-8, streams closed or in other encodings, odd types of columns",
    "changed": "fits killed and gone on with after the sign of one sample was changed, read before or not",
}
ROWS |= {
    "sources": "results that lead to URLs, and URLs of other schemes: nothing was reached or started",
    "writers": "places to write to that hold data, notes, folders, links, pipes, sockets or devices",
}
GOOD = ("right", "read", "error")
BAD = ("wrong", "traceback", "hang", "crash")


def counts(part):
    """How often each outcome was, over all cases."""
    words = (*GOOD, *BAD, "hdf5 crash")
    return {word: sum(found.get(word, 0) for found in part["outcomes"].values()) for word in words}


def outcomes_table(stored):
    """One row a part."""
    lines = [
        "| attack | trials | right | read | clear error | " + " | ".join(BAD) + " |",
        "|---" * (5 + len(BAD)) + "|",
    ]
    for name, words in ROWS.items():
        if name in stored["parts"]:
            part = stored["parts"][name]
            found = counts(part)
            about = words.format_map(Counter({**part["done"], "cases": len(part["outcomes"])}))
            numbers = [sum(found.values()), *(found[word] for word in (*GOOD, *BAD))]
            lines.append(f"| {about} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    return "\n".join(lines) + "\n"


def formats_table(stored):
    """One row a kind of damaged file."""
    lines = [
        "| kind of file | tried | right | read | clear error | HDF5's decoder crashed |",
        "|---|---|---|---|---|---|",
    ]
    for kind, found in stored["parts"]["files"]["outcomes"].items():
        numbers = [sum(found.values()), *(found.get(word, 0) for word in (*GOOD, "hdf5 crash"))]
        lines.append(f"| `{kind}` | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines) + "\n"


def said(stored):
    """Where, how long, and of which code, in a sentence."""
    minutes = sum(part["seconds"] for part in stored["parts"].values()) / 60
    code = ", ".join(sorted({part.get("code", "of before") for part in stored["parts"].values()}))
    return f"{stored['machine']}; {minutes:.0f} minutes in all; code {code} (digest of its files).\n"


TABLES = {"outcomes": outcomes_table, "formats": formats_table, "said": said}

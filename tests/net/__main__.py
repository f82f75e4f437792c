"""Compare the rows with what the code says now, or record them anew; see the docstring of the package."""

import json
import sys
import time

from net.clusters import clusters
from net.rows import PLACE, Net, computed, rows


def written(every):
    """The rows as text: what is fitted on one line, its answer on the next."""
    lines = []
    for row in every:
        text = json.dumps({name: value for name, value in row.items() if name != "answer"}, ensure_ascii=False)
        if "answer" in row:
            text = f'{text[:-1]},\n "answer": {json.dumps(row["answer"])}}}'
        lines.append(text)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def record(names, missing):
    """Store the answers of some rows, or of all."""
    every = list(rows().values())
    for row in every:
        if (
            "same_as" in row
            or "refused" in row
            or (names and row["name"] not in names)
            or (missing and "answer" in row)
        ):
            continue
        row["answer"] = computed(row)
        sys.stdout.write(f"{row['name']}: {row['answer']['n_samples']} samples, found {row['answer']['found']}\n")
    PLACE.write_text(written(every))


def compare(names):
    """List the rows that differ from what is stored; the number of those that had to stay and did not."""
    same, changed, broken = 0, 0, 0
    with clusters() as client_of:
        net = Net(client_of)
        for name in names or rows():
            stays, begun = rows()[name]["mark"] == "stay", time.perf_counter()
            try:
                outcome = net.outcome(name)
                told, noted = outcome.told, outcome.noted
            except Exception as error:  # any: rows that cannot be fitted are listed, too
                told, noted = f"{type(error).__name__}: {error}", ()
            took = time.perf_counter() - begun
            same, changed, broken = same + (not told), changed + bool(told and not stays), broken + bool(told and stays)
            word = ("BROKEN" if stays else "changed") if told else "noted" if noted else "slow" if took > 2 else ""
            if word:
                sys.stdout.write(f"{word:8} {name} ({took:.1f} s): {told or ', '.join(noted)}\n")
    sys.stdout.write(f"{same} rows as stored, {changed} changed that may change, {broken} changed that must stay\n")
    return broken


def main(words):
    """The command."""
    if words[:1] == ["record"]:
        record([word for word in words[1:] if word != "--missing"], "--missing" in words)
        return 0
    return min(compare(words), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

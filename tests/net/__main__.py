"""Record the rows anew: all, those that are named, or (``--missing``) those without an answer."""

import json
import sys

from net.rows import PLACE, computed, rows


def written(every):
    """The rows as text: what is fitted on one line, its answer on the next."""
    lines = []
    for row in every:
        text = json.dumps({name: value for name, value in row.items() if name != "answer"}, ensure_ascii=False)
        if "answer" in row:
            text = f'{text[:-1]},\n "answer": {json.dumps(row["answer"])}}}'
        lines.append(text)
    return "[\n" + ",\n".join(lines) + "\n]\n"


every, names = list(rows().values()), sys.argv[1:]
for row in every:
    if "same_as" in row or "refused" in row:
        continue
    if "answer" not in row if names == ["--missing"] else not names or row["name"] in names:
        row["answer"] = computed(row)
        sys.stdout.write(f"{row['name']}: {row['answer']['n_samples']} samples, found {row['answer']['found']}\n")
PLACE.write_text(written(every))

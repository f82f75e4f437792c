"""Where answers differ or surprise, and why: words for docs/real.md.  Figures beside them come from the stored run.

A test asks for a reason wherever verdicts differ between tools, or between the default and ``dependence=None``, and
wherever halves of data with a claim do not agree.
"""

from __future__ import annotations

REASONS: dict[str, str] = {
    "IL-2": (
        "Ligands come by family, so neighbours in the file are alike. The order is that of a list: "
        "`dependence=None` is right, and agrees with MNE. Halves have six or seven units, whose flips give no p "
        "below 1/32, before three statistics are paid for."
    ),
    "firms": "Halves have five or six firms: their flips give no p below 1/16 or 1/32.",
    "temperatures": (
        "Days follow each other, and a year has few independent ones. MNE takes all 364 as exchangeable. Here "
        '"not tested" is right, and `dependence=None` is not: ask for the mean of several years instead.'
    ),
    "serology": (
        "Sera of the same course resemble each other even ten rows apart. The file is a list, so `dependence=None` is "
        "right, and agrees with MNE and scikit-learn. In the default, errors are enlarged so much that correcting the "
        "strength for noise leaves nothing of it; the pattern is the same."
    ),
    "Indian Pines": (
        "Pixels in a row belong to the same field, and fields are the units. Name them with `groups=`; no tool "
        "can know them. The small p of the others counts every pixel."
    ),
    "motions": (
        "Two things make p larger in the file's order. The file is sorted, so that each of 32 bins holds one "
        "motion, and flips of the eight bins of a motion keep a good part of its effect. And neighbours of the "
        "same motion are a little alike beyond that. `dependence=None` takes every recording as a unit."
    ),
    "cancer cells": (
        "The file is sorted by kind, and lines of the same origin stand side by side. So neighbours are alike "
        "beyond their kind, and bins of two lines leave few units for each of 14 kinds. `dependence=None` takes "
        "every line as a unit, and agrees with MNE and scikit-learn."
    ),
    "bicycles": (
        "The use of one day goes with that of the next. The default enlarges errors and flips, and claims all the same."
    ),
    "blood cells": (
        "Thinned to every fifth gene. With all 765 genes this question takes one to two seconds, but "
        '`target="variance"` some 20, where PCA without a test takes less than one: each of its 99 flips is a '
        "decomposition. This is a limit."
    ),
    "meat": "22 spectra are copies of others, and the result says so. Copies are no new evidence.",
    "epidemics": (
        "One country has half of all the energy, so that least squares is a statement about that country; the "
        "result warns of heavy tails and of the one sample. In the default, another order puts other countries "
        "beside it, which moves p far. Take logarithms first. scikit-learn asks another question: whether deaths "
        "can be predicted for countries that were not fitted."
    ),
    "El Niño": (
        "The dose is the year, which is the order of the samples: the result says that a drift cannot be told from an "
        "effect. p is near 5 %, so that chance decides the verdict. With `dependence=None` no order moves p; another "
        "seed does, by its Monte-Carlo error. The default tests bins of two years; other orders make other bins, which "
        "moves it more. Of the three statistics only the plain one sees the warming; testing three of them doubles "
        "its p."
    ),
    "travel": (
        'The verdict is "signal", though the pattern itself is not significant: costs that go together are loud, '
        "and with these taken down the effect shows. Two of the three statistics do that, and p of the signal "
        "counts all three. The pattern that is reported stays that of least squares, with its own p; "
        '`whiten="modes"` shows what was seen. The ridge of scikit-learn weighs costs against each other, too.'
    ),
    "kinetic": (
        "Neighbours in the file are alike, which the test of variation takes for dependence. Mixtures are a list: "
        "`dependence=None` is right."
    ),
    "economy": (
        'Quarters follow each other, so that "not tested" is right, and `dependence=None` is not. PCA and EOFs '
        "have the same shares, and no test."
    ),
    "Atlantic": (
        "Free components have a larger share than those of rank one: the weather of the Atlantic is no product of "
        "latitude and longitude."
    ),
    "exercise": (
        "20 men are too few for held-out folds. Four are judged by what the other sixteen say, and one fold that "
        'goes the wrong way outweighs the others, so that p may come near 1. Read no more than "no" into it. '
        "cca-zoo permutes whole fits of all rows, and makes no claim either."
    ),
    "mouse views": (
        "The first two directions are as strong as each other. Halves of 20 mice pick one, "
        "the other, or a mixture, so that the cosine of first directions is low, and 20 rows prove nothing. The "
        "claim is that of 40 mice."
    ),
    "numerals": (
        "The file is sorted by numeral, so the default holds out runs of rows: a fit that has never seen an eight "
        "is judged by eights. The order means nothing here: `dependence=None`. Its strength is a mean product of "
        "four scores, and cannot be compared with the mean correlation of pairs that MCCA has."
    ),
    "penguins": (
        "The file is sorted by kind. The default takes neighbours for a series, and tests by shifting one view "
        "against the other; three long runs of kinds leave few shifts that differ. The order means nothing: "
        "`dependence=None`."
    ),
}

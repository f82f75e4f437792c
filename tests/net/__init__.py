"""The net: small fits through the public face, with their answers of one day, to redesign above.

==============  =====================================================================================================
`rows.json`     the rows: data by a recorded seed, what is fitted, and the stored answer
`data.py`       makes the data of a row, and writes them in every format; knows nothing of ``tpca``
`adapter.py`    does the fit of a row: the only place that knows names of parameters and attributes
`rows.py`       recomputes and compares
`test_net.py`   the test
==============  =====================================================================================================

A row is marked ``"stay"``, and its answer is asserted; or ``"change"``, and its answer of the day it was recorded is a
record only: the test asserts that the fit still gives an answer, not which.  A row with ``same_as`` stores no answer:
it has the bits of that other row, fitted by other means (an engine, a format, in parts, after being stopped).

Where nothing is found the vectors are those of noise, which rounding may turn: such a row says what is ``asserted``.

From the root of the repository, with ``src`` and ``tests`` on ``PYTHONPATH``::

    python -m net             # store the answers of all rows anew; with names after it, of these rows
    python -m net --missing   # store answers of rows that have none yet
"""

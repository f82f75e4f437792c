"""An hour of attacks on the command: kills, damaged files and checkpoints, full disks, clusters that fail, readers.

``PYTHONPATH=tests python -m attack --out docs/reliability.json`` goes on where it was stopped, unless the code
has changed since: then a part begins anew.  Every trial is drawn from its part and number; the file keeps how many have
been done and how each ended:

* ``right``: the bytes of the fit that nobody disturbed; of a damaged file, the samples that NumPy, zarr, h5py or SciPy
  read from it;
* ``read``: a damaged file of numbers or words that are possible; nothing else could tell that they were others;
* ``error``: one line that begins with ``tpca:``, exit code 2, 130 or 143;
* and what must not be: ``wrong``, ``traceback``, ``hang`` (a minute), ``crash`` (a signal that nobody sent).
"""

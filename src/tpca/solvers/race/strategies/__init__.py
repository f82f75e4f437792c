"""Search strategies: each looks for the signal in its own way, and proposes vectors.

What each earns is the median of samples until proven, in u = d^{k̄/2} (docs/race.md):

=================  =============================================  ====================================================
strategy           holds                                          earns
=================  =============================================  ====================================================
*whole*            the sum of all samples                         1.0 u at order 3 (48³); nothing beats it where it fits
*flow*             two blocks of r columns                        1.2 u (24⁴), 1.6 u in 40·d³ floats (10⁶)
*singles*          one vector per mode and replica                3.8 u in 50·d² floats (10⁶), where no flow fits
*symmetric*        a sum of partial traces                        equal vectors: 0.4 u for 1.2 (24⁴), 0.1 for 1.6 (10⁶)
*symmetric pairs*  the paper's blocks, pulled to the identity     equal pairs: 0.9 u for 1.2 (24⁴), 0.6 for 1.6 (10⁶)
=================  =============================================  ====================================================

One of the first three is the main strategy; the two for structure join where they take a small share of the memory.
Replicas of pairs of modes lost to singles at equal state, and partitions into more than two groups to halves.
"""

"""Umbrella's lab for Python: block traces, and write-back policies on modelled disks.

>>> import umbrella_lab as lab
>>> lab.run("file", "rnd-write", scale=0.01).rows[0]["policy"]
'file'
"""

from ._native import __version__
from ._runs import Results, compare, run, sweep
from ._trace import Trace

__all__ = ["Results", "Trace", "__version__", "compare", "run", "sweep"]

"""Writes a synthetic dataset, in a process of its own so that what it needs is not counted as the benchmark's.

python -m tests.benchmarks._synthetic FOLDER ROUNDS
"""

import sys
from pathlib import Path

from tests import synthetic

synthetic.write(Path(sys.argv[1]), rounds=int(sys.argv[2]), aa=False)

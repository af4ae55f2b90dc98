"""Triton kernels run here under the interpreter; it must be chosen before they are imported."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

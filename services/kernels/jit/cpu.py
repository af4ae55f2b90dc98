"""One decorator for all CPU kernels: compiled on first use, kept on disk, no fp rewriting.

Without fast-math flags neither vectorisation nor inlining may change a result, so a function
gives the same bits wherever it is called from. Compiled code is kept in a folder named by a
hash of all kernel sources, since a kept caller does not notice that its callee has changed.
"""

import os
from hashlib import sha256
from pathlib import Path

from numba import config, njit

# Besides the kernels: the files whose constants they compile in.
_CONSTANTS = (
    *("tree_tables.py", "state_words.py", "fixed/__init__.py", "sample/params.py"),
    *("sample/state.py", "../contract/limits.py", "../contract/path.py"),
)


def _cache_folder() -> str:
    kernels = Path(__file__).resolve().parents[1]
    files = [*sorted(kernels.glob("*/cpu.py")), *(kernels / name for name in _CONSTANTS)]
    name = f"numba-{sha256(b''.join(map(Path.read_bytes, files))).hexdigest()[:16]}"
    if os.access(kernels, os.W_OK):
        return str(kernels / "__pycache__" / name)
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(home) / "lumotree" / name)


if not config.CACHE_DIR:
    config.CACHE_DIR = _cache_folder()

compiled = njit(nogil=True, error_model="numpy", cache=True)

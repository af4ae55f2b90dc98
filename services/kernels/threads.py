"""How many CPU threads the kernels use."""

import torch

from services.kernels.dispatch import backend


def use_threads(count: int) -> None:
    """Let the CPU kernels of this process, called from this thread, use up to `count` threads.

    Numbers where products are the project's own, they alone use a second thread: a region of
            torch's pool waits for whoever holds the other core. Bits do not depend on it there.
    """
    linear = backend("linear", "cpu")
    shares = hasattr(linear, "use_threads")
    if shares:
        linear.use_threads(count)
    torch.set_num_threads(1 if shares else count)


def num_threads() -> int:
    """Return how many threads a CPU product may use."""
    linear = backend("linear", "cpu")
    shares = hasattr(linear, "num_threads")
    return int(linear.num_threads()) if shares else torch.get_num_threads()

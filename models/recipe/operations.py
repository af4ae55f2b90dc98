"""The functions that may be replaced by compiled ones, held in one place."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from models.recipe import arithmetic, chunk_backward


@dataclass(slots=True)
class Operations:
    """Hold one implementation of each heavy function; the defaults are eager."""

    gdn_inputs: Callable[..., Any] = arithmetic.gdn_inputs
    gdn_output: Callable[..., Any] = arithmetic.gdn_output
    attention_block: Callable[..., Any] = arithmetic.attention_block
    block_loss: Callable[..., Any] = arithmetic.block_loss
    query_key_backward: Callable[..., Any] = chunk_backward.query_key_backward
    factor_backward: Callable[..., Any] = chunk_backward.factor_backward

    def compile(self, level: str) -> None:
        """Compile everything ("full") or all but the chunk backward ("part")."""
        import torch._dynamo

        torch._dynamo.config.automatic_dynamic_shapes = False
        torch._dynamo.config.cache_size_limit = 64
        for field in fields(self):
            if level == "full" or not field.name.endswith("_backward"):
                eager = getattr(Operations(), field.name)
                setattr(self, field.name, torch.compile(eager, dynamic=False))

    def reset(self) -> None:
        """Go back to the eager functions."""
        for field in fields(self):
            setattr(self, field.name, getattr(Operations(), field.name))

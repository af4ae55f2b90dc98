"""transformers' own generate as an arm, through the worker's protocol."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LogitsProcessorList
from transformers.generation.streamers import BaseStreamer


class FirstToken(BaseStreamer):
    """Note when the first new token came."""

    def __init__(self) -> None:
        self.count, self.at = 0, 0.0

    def put(self, value: torch.Tensor) -> None:
        """Take the prompt, then each new token."""
        self.count += 1
        if self.count == 2:
            self.at = time.perf_counter()

    def end(self) -> None:
        """Nothing to close."""


class PresencePenalty:
    """Lower the logits of tokens that were emitted, as vLLM does."""

    def __init__(self, penalty: float, prompt_tokens: int) -> None:
        self.penalty, self.prompt_tokens = penalty, prompt_tokens

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the lowered logits."""
        emitted = ids[:, self.prompt_tokens :].unique()
        scores[:, emitted] -= self.penalty
        return scores


def main() -> None:
    """Load the model, say ready, answer requests until the input ends."""
    options = json.loads(sys.argv[1])
    torch.set_num_threads(options["threads"])
    model = AutoModelForCausalLM.from_pretrained(options["model"], dtype=torch.float32)
    _say({"ready": True})
    for line in sys.stdin:
        _say(_answer(model, json.loads(line)))


@torch.inference_mode()
def _answer(model: Any, asked: dict[str, Any]) -> dict[str, Any]:
    sampling = dict(asked["sampling"])
    torch.manual_seed(sampling.pop("seed", 0))
    penalty = PresencePenalty(sampling.pop("presence_penalty", 0.0), len(asked["token_ids"]))
    greedy = sampling.get("temperature", 1.0) == 0.0
    prompt, first = torch.tensor([asked["token_ids"]]), FirstToken()
    start = time.perf_counter()
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=asked["max_tokens"],
        eos_token_id=[8177, 8179],
        streamer=first,
        logits_processor=LogitsProcessorList([penalty]),
        **({"do_sample": False} if greedy else {"do_sample": True, **sampling}),
    )
    end = time.perf_counter()
    ids = output[0, prompt.shape[1] :].tolist()
    return {
        "token_ids": ids,
        "prompt_tokens": prompt.shape[1],
        "ttft_ms": (first.at - start) * 1e3,
        "prefill_ms": (first.at - start) * 1e3,
        "decode_ms": (end - first.at) * 1e3,
    }


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""vLLM as an arm: the worker's protocol over vLLM's own engine, in the peers' environment.

Runs with no import of this project: its environment holds vLLM alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("VLLM_PLUGINS", "")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def main() -> None:
    """Load vLLM, say ready, answer requests until the input ends."""
    options = json.loads(sys.argv[1])
    os.environ.setdefault("OMP_NUM_THREADS", str(options["threads"]))
    from vllm import LLM

    _, method, *depth = options["arm"].split("-")
    speculative = None
    if depth:
        speculative = {"method": method, "num_speculative_tokens": int(depth[0])}
    engine = LLM(
        model=options["model"],
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=9216,
        max_num_seqs=1,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
        disable_log_stats=False,
        speculative_config=speculative,
    )
    _say({"ready": True})
    for line in sys.stdin:
        _say(_answer(engine, json.loads(line)))


def _answer(engine: Any, asked: dict[str, Any]) -> dict[str, Any]:
    from vllm import SamplingParams

    # No seed: vLLM 0.32.0 dies on a CPU with one ("CPU Generator does not use offset").
    sampling = SamplingParams(
        max_tokens=asked["max_tokens"],
        stop_token_ids=[8177, 8179],
        detokenize=False,
        **{name: value for name, value in asked["sampling"].items() if name != "seed"},
    )
    start = time.perf_counter()
    prompt = {"prompt_token_ids": list(asked["token_ids"])}
    output = engine.generate(prompt, sampling, use_tqdm=False)[0]
    total_ms = (time.perf_counter() - start) * 1e3
    ttft_ms = _ttft_ms(output)
    ids = list(output.outputs[0].token_ids)
    return {
        "token_ids": ids,
        "prompt_tokens": len(asked["token_ids"]),
        "ttft_ms": ttft_ms,
        "prefill_ms": ttft_ms,
        "decode_ms": total_ms - ttft_ms,
        "finish_reason": output.outputs[0].finish_reason,
    }


def _ttft_ms(output: Any) -> float:
    """Return the time to the first token that vLLM reports.

    Raises  RuntimeError if it reports none: rates would then hold the prefill.
    """
    metrics = output.metrics
    if metrics is None or not getattr(metrics, "first_token_latency", 0.0):
        raise RuntimeError("vLLM reported no first-token latency")
    return float(metrics.first_token_latency) * 1e3


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

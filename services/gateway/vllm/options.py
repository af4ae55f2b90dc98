"""What a vLLM engine is built from, and what it cannot honour."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from services.contract import pb
from services.contract.config import EngineConfig
from services.contract.errors import InvalidField
from services.contract.limits import MAX_PATH
from services.contract.sampling import Drafting
from services.gateway.front import Traits

gen = pb.generation_pb2
NAME: Final = "vllm"
STAGES: Final = ("engine",)
_FORM: Final = re.compile(r"off|(mtp|suffix)-([1-9]\d?)")
_REFUSED: Final = {
    "sampling.banned_token_ids": "vLLM bans no ids; use logit_bias or allowed_token_ids",
    "sampling.tie_policy": "vLLM does not say what its top-k does with ties",
    "speculation.shape": "vLLM's drafts are fixed when it starts",
    "speculation.drafter": "vLLM's drafts are fixed when it starts",
    "speculation.suffix": "vLLM's drafts are fixed when it starts",
}
_REFUSED_VALUES: Final = {
    "output.logprobs_mode": ((gen.LOGPROBS_MODE_PROCESSED,), "vLLM reports raw log-probabilities"),
    "speculation.digests": ((True,), "vLLM gives no digest of its state"),
    "speculation.trace_level": (
        (gen.TRACE_LEVEL_STEPS, gen.TRACE_LEVEL_FULL_TREE),
        "vLLM does not tell its drafts",
    ),
}
_OTHER_MODES: Final = {
    "off": (gen.SPECULATION_MODE_CHAIN, gen.SPECULATION_MODE_TREE),
    "mtp": (gen.SPECULATION_MODE_OFF, gen.SPECULATION_MODE_TREE),
    "suffix": (gen.SPECULATION_MODE_OFF, gen.SPECULATION_MODE_TREE),
}


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """Hold an engine's settings.

    Args    config: model, device, dtype, threads, sequences and context are used.
            speculative: "off", or "mtp-K" or "suffix-K" for drafts of up to K tokens.
    Raises  InvalidField naming the key.
    """

    config: EngineConfig
    speculative: str = "off"
    method: str = field(init=False)
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        found = _FORM.fullmatch(self.speculative)
        depth = int(found[2] or 0) if found else MAX_PATH
        if found is None or depth >= MAX_PATH:
            text = f"{self.speculative!r}; use off, mtp-K or suffix-K, K from 1 to {MAX_PATH - 1}"
            raise InvalidField("SPECULATIVE", text, "speculative")
        if self.config.groups > 1 or self.config.runtime != "inproc":
            text = "stage groups are lumotree's own; leave groups and runtime out"
            raise InvalidField("ENGINE", text, "engine")
        object.__setattr__(self, "method", found[1] or "off")
        object.__setattr__(self, "depth", depth)

    @property
    def drafting(self) -> Drafting:
        """Return what every request is drafted with."""
        if not self.depth:
            return Drafting("root", "mtp", suffix=False)
        return Drafting(f"chain-{self.depth}", self.method, suffix=self.method == "suffix")

    @property
    def traits(self) -> Traits:
        """Return how callers see this engine."""
        other = f"this server's vLLM runs with speculation {self.speculative}"
        return Traits(
            name=NAME,
            stages=STAGES,
            num_pages=0,
            has_trees=False,
            tie_policy=gen.TIE_POLICY_UNSPECIFIED,
            drafting=self.drafting,
            refused=_REFUSED,
            refused_values={
                **_REFUSED_VALUES,
                "speculation.mode": (_OTHER_MODES[self.method], other),
            },
        )

    def arguments(self) -> dict[str, Any]:
        """Return vLLM's engine arguments; prompts and answers cross as token ids."""
        config, drafts = self.config, None
        if self.depth:
            drafts = {"method": self.method, "num_speculative_tokens": self.depth}
        return {
            "model": config.model,
            "dtype": config.dtype,
            "max_model_len": config.context_length,
            "max_num_seqs": config.max_sequences,
            "enforce_eager": config.device == "cpu",
            "enable_prefix_caching": False,
            "skip_tokenizer_init": True,
            "speculative_config": drafts,
            "per_request_spec_decode_metrics": "summary" if drafts else "none",
        }

    def environment(self) -> dict[str, str]:
        """Return the environment that vLLM needs where the caller set none."""
        return {
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(self.config.threads),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_PLUGINS": "",
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        }

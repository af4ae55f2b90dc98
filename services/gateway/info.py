"""What the server says of itself, its model and its load."""

from __future__ import annotations

import hashlib
import platform
import time
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from services.contract import pb
from services.contract.limits import MAX_PATH, MAX_QUEUE, MAX_ROWS
from services.contract.sampling import SamplingParams
from services.gateway import replies
from services.gateway.front import Load, ServedEngine
from services.model.inspect import CheckpointFacts

gen = pb.generation_pb2

FEATURES = (
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "min_p",
    "logit_bias",
    "allowed_token_ids",
    "logprobs",
    "seed",
    "min_tokens",
    "stop",
    "n",
)


@dataclass
class ServerFacts:
    """Facts of one served model; the checkpoint is described once."""

    engine: ServedEngine
    served_name: str = ""
    started: float = field(default_factory=time.monotonic)

    @property
    def model(self) -> str:
        """Return the served model's name, its folder's by default."""
        return self.served_name or Path(self.engine.config.model).name

    @cached_property
    def description(self) -> CheckpointFacts:
        """Return what the checkpoint folder holds."""
        return self.engine.describe()

    def models(self) -> gen.ListModelsResponse:
        """Return the list of served models."""
        length = self.engine.config.context_length
        return gen.ListModelsResponse(
            models=[gen.ModelSummary(id=self.model, context_length=length)]
        )

    def model_info(self) -> gen.GetModelInfoResponse:
        """Return the served model's facts and the feature matrix."""
        facts, engine, traits = self.description, self.engine, self.engine.traits
        template = (engine.template.source or "").encode()
        defaults = SamplingParams(**engine.defaults.sampling)
        return gen.GetModelInfoResponse(
            id=self.model,
            architecture=facts.model_type,
            num_gdn_layers=facts.num_gdn_layers,
            num_attention_layers=facts.num_attention_layers,
            num_mtp_layers=int(facts.num_mtp_parameters > 0),
            num_parameters=facts.num_parameters,
            dtype=engine.config.dtype,
            state_dtype="float32",
            context_length=engine.config.context_length,
            vocab_size=engine.group.vocab_size,
            eos_token_ids=engine.defaults.eos_ids,
            chat_template_sha256=hashlib.sha256(template).hexdigest(),
            default_sampling=replies.sampling_options(defaults),
            shape=engine.config.shape if traits.drafting is None else traits.drafting.shape,
            max_rows=MAX_ROWS if traits.has_trees else 0,
            max_path=MAX_PATH if traits.has_trees else 0,
            tie_policy=traits.tie_policy,
            features=[
                gen.FeatureSupport(feature=f, chain=True, tree=traits.has_trees) for f in FEATURES
            ],
        )

    def server_info(self) -> gen.GetServerInfoResponse:
        """Return versions, transport, fingerprint and configuration."""
        stats, config = self.engine.group.stats(), asdict(self.engine.config)
        fingerprint = stats.get("fingerprint", {})
        return gen.GetServerInfoResponse(
            version=version("lumotree"),
            architecture=platform.machine(),
            uptime_seconds=time.monotonic() - self.started,
            runtime=self.engine.config.runtime,
            transport=str(stats.get("mode", "inproc")),
            mode=self.engine.config.mode,
            epochs=[group.epoch for group in self.engine.groups],
            fingerprint={str(k): str(v) for k, v in fingerprint.items()},
            config={"engine": self.engine.traits.name}
            | {k: str(v) for k, v in config.items() if k != "model"},
        )

    def load(self, scheduler: Load) -> gen.GetLoadResponse:
        """Return what runs, waits and is held."""
        config, groups = self.engine.config, len(self.engine.groups)
        num_pages = self.engine.traits.num_pages
        return gen.GetLoadResponse(
            running=scheduler.num_running,
            waiting=scheduler.num_waiting,
            queue_limit=groups * MAX_QUEUE,
            slots_total=groups * config.max_sequences,
            slots_used=scheduler.num_running,
            pages_total=num_pages,
            pages_used=num_pages - scheduler.free_pages,
            speculation=replies.summary(scheduler.speculation),
        )

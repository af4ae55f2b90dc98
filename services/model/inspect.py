"""Say what a checkpoint folder holds, from its headers alone."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from services.contract.errors import CheckpointError
from services.model.checkpoint import Checkpoint, check_tensors
from services.model.header import TensorEntry
from services.model.manifest import check_manifest
from services.model.tensor_names import mtp_tensors


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """Hold what `lumotree inspect` prints.

    Args    dtypes: tensors by stored dtype. mtp_tensors: "found/expected". weight_bytes,
            num_parameters: of the text model and MTP block, as stored. problem: what keeps
            the folder from being served, or what will be off; empty if nothing.
    """

    folder: str
    model_type: str
    num_layers: int
    num_gdn_layers: int
    num_attention_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    gdn_heads: str
    attention_heads: str
    context_length: int
    dtypes: dict[str, int]
    is_tied: bool
    mtp_tensors: str
    num_files: int
    num_tensors: int
    num_parameters: int
    num_mtp_parameters: int
    weight_bytes: int
    has_manifest: bool
    problem: str


def describe(folder: Path) -> CheckpointFacts:
    """Return the facts of a folder; one that could not be served is described too.

    Raises  CheckpointError if the config or a weight file cannot be read at all.
    """
    checkpoint = Checkpoint.scan(folder)
    config, entries = checkpoint.config, checkpoint.tensors.values()
    expected = mtp_tensors(config)
    mtp = [entry for name, entry in checkpoint.tensors.items() if name.startswith("mtp.")]
    has_manifest, problem = _problem(checkpoint)
    return CheckpointFacts(
        folder=str(folder),
        model_type=config.model_type,
        num_layers=config.num_layers,
        num_gdn_layers=config.num_gdn_layers,
        num_attention_layers=config.num_attention_layers,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        gdn_heads=f"{config.num_gdn_key_heads} key x {config.gdn_key_dim}, "
        f"{config.num_gdn_value_heads} value x {config.gdn_value_dim}",
        attention_heads=f"{config.num_query_heads} query, {config.num_kv_heads} key-value "
        f"x {config.head_dim}",
        context_length=config.context_length,
        dtypes=dict(Counter(entry.dtype for entry in entries)),
        is_tied=config.is_tied,
        mtp_tensors=f"{sum(name in checkpoint.tensors for name in expected)}/{len(expected)}",
        num_files=len({entry.path for entry in entries}),
        num_tensors=len(checkpoint.tensors),
        num_parameters=_parameters(entries),
        num_mtp_parameters=_parameters(mtp),
        weight_bytes=sum(entry.size_bytes for entry in entries),
        has_manifest=has_manifest,
        problem=problem,
    )


def _parameters(entries: Iterable[TensorEntry]) -> int:
    return sum(prod(entry.shape) for entry in entries)


def _problem(checkpoint: Checkpoint) -> tuple[bool, str]:
    """Return whether there is a manifest, and the first complaint that opening would raise."""
    try:
        has_manifest = check_manifest(checkpoint.folder)
        check_tensors(checkpoint)
    except CheckpointError as error:
        return (checkpoint.folder / "manifest.json").is_file(), str(error)
    if not checkpoint.config.num_mtp_layers:
        return has_manifest, "no MTP block: only suffix look-ups draft"
    return has_manifest, ""

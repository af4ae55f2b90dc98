"""Find the weight files of a folder and list their tensors by canonical name."""

import re
from pathlib import Path
from typing import Any, Final

from services.contract.errors import CheckpointError
from services.model.config import read_json
from services.model.header import TensorEntry, file_error, read_header
from services.model.tensor_names import canonical, refuse_quantized

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
MAX_SHARDS: Final = 1024
MAX_INDEX_BYTES: Final = 16 << 20
_SHARD_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.safetensors")


def list_tensors(folder: Path) -> dict[str, TensorEntry]:
    """Return the text and MTP tensors of a folder by canonical name.

    Raises  CheckpointError naming the file or tensor: no weights, a shard missing, damaged or
            not the one the index means, a name twice, quantized weights.
    """
    if (folder / "hf_quant_config.json").is_file():
        message = "hf_quant_config.json: quantized weights are not supported; use the bf16 one"
        raise CheckpointError("QUANTIZED", message)
    stored = _stored_tensors(folder)
    found: dict[str, TensorEntry] = {}
    for entry in stored:
        name = canonical(entry.name)
        if name is None:
            continue
        refuse_quantized(entry.name)
        if name in found:
            raise CheckpointError("TENSOR", f"tensor {name} is stored twice; keep one")
        found[name] = entry
    return found


def _stored_tensors(folder: Path) -> list[TensorEntry]:
    has_single, has_index = (folder / SINGLE).is_file(), (folder / INDEX).is_file()
    if has_single and has_index:
        raise CheckpointError("WEIGHT_FILE", f"both {SINGLE} and {INDEX} are there; remove one")
    if has_single:
        return list(read_header(folder / SINGLE).values())
    if has_index:
        return _indexed(folder)
    message = f"{SINGLE} and {INDEX} are missing; only safetensors weights are read"
    raise CheckpointError("WEIGHT_FILE", message)


def _indexed(folder: Path) -> list[TensorEntry]:
    weight_map = _weight_map(read_json(folder / INDEX, most=MAX_INDEX_BYTES))
    shards = {name: read_header(folder / name) for name in sorted(set(weight_map.values()))}
    for tensor, shard in weight_map.items():
        if tensor not in shards[shard]:
            message = f"the index says it holds {tensor}, but it does not"
            raise file_error(folder / shard, message)
    for shard, entries in shards.items():
        for tensor in entries:
            if weight_map.get(tensor) != shard:
                message = f"holds {tensor}, which the index does not place there"
                raise file_error(folder / shard, message)
    return [shards[shard][tensor] for tensor, shard in weight_map.items()]


def _weight_map(index: dict[str, Any]) -> dict[str, str]:
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError("WEIGHT_FILE", f"{INDEX}: no weight_map")
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not _SHARD_NAME.fullmatch(shard):
            message = f"{INDEX}: the file of {tensor} is no plain .safetensors name"
            raise CheckpointError("WEIGHT_FILE", message)
    if len(set(weight_map.values())) > MAX_SHARDS:
        raise CheckpointError("WEIGHT_FILE", f"{INDEX}: more than {MAX_SHARDS} shards")
    return weight_map

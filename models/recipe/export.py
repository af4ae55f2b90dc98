"""Write a checkpoint folder, join shards into one file, and check it with transformers."""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from models.recipe.settings import Config, Params

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
)
PROMPTS = (
    "def binary_search(items, target):\n",
    "import numpy as np\n\n\ndef normalize(x, axis=-1):\n",
)


def save_checkpoint(
    masters: Params, config: Config, target: Path, tokenizer: Path, max_bytes: int = 15 << 20
) -> None:
    """Write masters as bf16 safetensors of at most `max_bytes` each, config and tokenizer."""
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("model*safetensors*"):
        old.unlink()
    shards = _shards(masters, max_bytes)
    placed: dict[str, str] = {}
    for index, shard in enumerate(shards):
        name = f"model-{index + 1:05d}-of-{len(shards):05d}.safetensors"
        name = "model.safetensors" if len(shards) == 1 else name
        save_file(shard, target / name, metadata={"format": "pt"})
        placed |= dict.fromkeys(shard, name)
    if len(shards) > 1:
        size = sum(tensor.numel() * 2 for tensor in masters.values())
        index_file = {"metadata": {"total_size": size}, "weight_map": placed}
        (target / "model.safetensors.index.json").write_text(json.dumps(index_file, indent=1))
    (target / "config.json").write_text(json.dumps(config, indent=2))
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, target / name)


def join_checkpoint(source: Path, target: Path, tokenizer: Path) -> None:
    """Write the shards of `source` as one checkpoint file in `target`."""
    target.mkdir(parents=True, exist_ok=True)
    tensors: Params = {}
    for path in sorted(source.rglob("model*.safetensors")):
        tensors |= load_file(path)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(next(source.rglob("config.json")), target / "config.json")
    for path in tokenizer.iterdir():
        shutil.copy(path, target / path.name)
    print(f"{len(tensors)} tensors, {sum(t.numel() for t in tensors.values())} parameters")


def check_checkpoint(folder: Path) -> None:
    """Load a folder with transformers, compare both tokenizers, print two continuations."""
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    print(type(model).__name__, {key: value for key, value in info.items() if value})
    text = "def f(x):\n    return x[12] + 'é'  # <think>\n<|im_end|>"
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if tokenizer(text)["input_ids"] != plain.encode(text).ids:
        raise ValueError("the two tokenizers disagree; check tokenizer_config.json")
    for prompt in PROMPTS:
        inputs = tokenizer(prompt, return_tensors="pt")
        output = model.generate(**inputs, max_new_tokens=80, do_sample=False)
        print("-----\n" + tokenizer.decode(output[0]))


def _shards(masters: Params, max_bytes: int) -> list[Params]:
    shards: list[Params] = [{}]
    size = 0
    for name, master in masters.items():
        tensor = master.detach().to(torch.bfloat16).contiguous().cpu()
        if shards[-1] and size + tensor.numel() * 2 > max_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.numel() * 2
    return shards


if __name__ == "__main__":
    join_checkpoint(*(Path(argument) for argument in sys.argv[1:4]))
    check_checkpoint(Path(sys.argv[2]))

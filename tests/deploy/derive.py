"""The cluster files as tests run them: what ships, with this host's names in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from tests.tidy.sources import ROOT

DEPLOY = ROOT / "deploy"
CPU_UNIT = """--num-gpus=0 --resources='{"lumotree":1}'"""
ADDRESSES = ("127.0.0.1", "127.0.0.2")
# Each address is a host with a container of its own.
STATE_OF_ADDRESS = "export DOCKER_STATE=/mnt/docker/$(cut -d' ' -f3 <<< \"$SSH_CONNECTION\")\n"
# All that a test may change: addresses, user's key, folder of the models, device.
REPLACED = (
    ("192.168.1.50", "127.0.0.1"),
    ("- 192.168.1.51\n", "- 127.0.0.2\n"),
    ("  - 192.168.1.52\n", ""),
    ("--address=$RAY_HEAD_IP:6379", "--address=$RAY_HEAD_IP:6379 --node-ip-address=127.0.0.2"),
    ("--groups 3", "--groups 2"),
    ("~/.ssh/id_ed25519", "/mnt/ssh/user_key"),
    ("/models", "/mnt/models"),
    ("--device cuda", "--device cpu --threads 1 --max-model-len 1024 --max-num-seqs 2"),
    ("--num-gpus=1", CPU_UNIT),
)


def cluster_file(name: str) -> dict[str, Any]:
    """Return a cluster file of deploy/ as it ships."""
    loaded = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return dict(loaded)


def derived(name: str, docker: bool) -> str:
    """Return a cluster file's text for this host; without `docker`, for the bare host."""
    parts = cluster_file(name)
    if not docker:
        del parts["docker"]
    return _replaced(yaml.safe_dump(parts, width=10_000, sort_keys=False))


def environment(name: str) -> dict[str, str]:
    """Return the variables that a cluster file gives its container."""
    options = cluster_file(name)["docker"]["run_options"]
    pairs = [option.removeprefix("-e ") for option in options if option.startswith("-e ")]
    return dict(pair.split("=", 1) for pair in pairs)


def image_environment() -> dict[str, str]:
    """Return the variables of the image's last stage."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")[-1]
    block = text.split("\nENV ", 1)[1].replace("\\\n", " ").split("\n", 1)[0]
    return dict(pair.split("=", 1) for pair in block.split())


def write_host(folder: Path, name: str, docker: bool, token: str) -> None:
    """Fill the folder that becomes the test host's /mnt."""
    for part in ("bin", "home", "container", "client", "models"):
        (folder / part).mkdir(parents=True)
    for program in ("ray", "lumotree"):
        (folder / "bin" / program).symlink_to(Path(sys.prefix) / "bin" / program)
    (folder / "models" / "default").symlink_to(ROOT / "models" / "lumo-tiny")
    (folder / "models" / "api-key").write_text(token + "\n")
    (folder / "models" / "ray-token").write_text(token * 2)
    (folder / "cluster.yaml").write_text(derived(name, docker))
    if docker:
        _write_login(folder / "home", STATE_OF_ADDRESS)
        (folder / "bin" / "docker").symlink_to(Path(__file__).with_name("docker"))
        for address in ADDRESSES:
            _write_container(folder / "docker" / address)
    else:
        _write_login(folder / "home", _exports(environment(name)))


def _write_container(state: Path) -> None:
    _write_login(state / "home", "")
    image = image_environment() | {"HOME": "/mnt/container", "PATH": "/usr/bin:/bin"}
    lines = [f"{name}={value}\n" for name, value in image.items()]
    (state / "image.env").write_text("".join(lines))


def _write_login(home: Path, more: str) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / ".bashrc").touch()
    (home / ".profile").write_text("export PATH=/mnt/bin:$PATH\n" + more)


def _exports(variables: dict[str, str]) -> str:
    return "".join(f"export {name}={value}\n" for name, value in variables.items())


def _replaced(text: str) -> str:
    for old, new in REPLACED:
        text = text.replace(old, new)
    return text

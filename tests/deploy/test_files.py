"""The files of deploy/ and the Dockerfile hold what the service needs, and no more."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.derive import DEPLOY, cluster_file, derived, environment, image_environment
from tests.tidy.sources import ROOT

CLUSTERS = ("dgx-spark.yaml", "dgx-spark-cluster.yaml")
VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",
}
LARGEST_STORE = 256 << 20
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
CERTS = DEPLOY / "certs.sh"
Edit = Callable[[Any], Any]


def cluster_faults(parts: dict[str, Any]) -> list[str]:
    """Return what a cluster file lacks or should not hold."""
    head = " ".join(parts["head_start_ray_commands"])
    options = " ".join(parts["docker"]["run_options"])
    starts = [*parts["head_start_ray_commands"], *parts.get("worker_start_ray_commands", [])]
    stores = [int(n) for start in starts for n in re.findall(r"--object-store-memory=(\d+)", start)]
    checks = {
        "provider": parts["provider"]["type"] == "local",
        "address": f"--node-ip-address={parts['provider']['head_ip']} " in head,
        "join": f"RAY_ADDRESS={parts['provider']['head_ip']}:6379" in head,
        "variables": all(f"-e {name}={value}" in options for name, value in VARIABLES.items()),
        "entrypoint": '--entrypoint ""' in options,
        "capabilities": "--cap-drop ALL" in options and "no-new-privileges" in options,
        "memory": "--ipc=host" in options and parts["docker"]["disable_shm_size_detection"],
        "pull": parts["docker"]["pull_before_run"] is False,
        "dashboard": "--include-dashboard=false" in head and "--dashboard-host" not in head,
        "ports": not re.search(r"(^| )(-p|--publish)", options),
        "store": len(stores) == sum("ray start" in start for start in starts)
        and max(stores) <= LARGEST_STORE,
        "token": "--api-key-file" in head,
        "survives": "setsid nohup" in head and head.rstrip().endswith("&"),
    }
    return [name for name, is_right in checks.items() if not is_right]


def compose_faults(parts: dict[str, Any]) -> list[str]:
    """Return what the compose file lacks or should not hold."""
    service = parts["services"]["lumotree"]
    home = next((x for x in service["tmpfs"] if x.startswith("/home/lumotree")), "")
    checks = {
        "ports": service["ports"] == ["127.0.0.1:50051:50051"],
        "network": "network_mode" not in service and "privileged" not in service,
        "root": service["read_only"] is True,
        "capabilities": service["cap_drop"] == ["ALL"],
        "privileges": "no-new-privileges:true" in service["security_opt"],
        "home": {"exec", "uid=10001", "mode=0700"} <= set(home.partition(":")[2].split(",")),
        "token": "--api-key-file=/run/secrets/api_key" in service["command"],
    }
    return [name for name, is_right in checks.items() if not is_right]


def image_faults(text: str) -> list[str]:
    """Return what a Dockerfile lacks or should not hold."""
    lines = text.splitlines()
    final = text.split("\nFROM ")[-1]
    installs = re.findall(r"pip install [^\n]*", text)
    checks = {
        "stages": len([line for line in lines if line.startswith("FROM ")]) == 2,
        "base": any(re.match(r"ARG BASE=\S+:\d\S+$", line) for line in lines),
        "user": re.search(r"^USER [1-9]\d*:[1-9]\d*$", final, re.MULTILINE) is not None,
        "hashes": any("--require-hashes" in x for x in installs)
        and all("--require-hashes" in x or "--no-deps" in x for x in installs),
        "entrypoint": not any(line.startswith("ENTRYPOINT") for line in lines),
        "programs": all(re.search(rf"\b{x}\b", final) for x in ("rsync", "openssh-client", "gcc")),
        "path": "/opt/lumotree/bin/ray" in final,
        "token": "RAY_AUTH_MODE=token" in final,
    }
    return [name for name, is_right in checks.items() if not is_right]


def _replace(place: str, old: str, new: str) -> Edit:
    def edit(parts: dict[str, Any]) -> dict[str, Any]:
        changed = copy.deepcopy(parts)
        owner = changed["docker"] if place == "run_options" else changed
        owner[place] = [line.replace(old, new) for line in owner[place]]
        return changed

    return edit


PLANTED = {
    "variables": _replace("run_options", "AUTH_MODE=token", "AUTH_MODE=disabled"),
    "entrypoint": _replace("run_options", '--entrypoint ""', "--init"),
    "ports": _replace("run_options", "--gpus all", "-p 6379:6379"),
    "capabilities": _replace("run_options", "--cap-drop ALL", "--privileged"),
    "dashboard": _replace("head_start_ray_commands", "--include-dashboard=false", ""),
    "store": _replace("head_start_ray_commands", "memory=200000000", "memory=20000000000"),
    "address": _replace("head_start_ray_commands", "address=192.168.1.50", "address=10.0.0.1"),
    "join": _replace("head_start_ray_commands", "RAY_ADDRESS=", "X="),
    "survives": _replace("head_start_ray_commands", "setsid nohup ", ""),
    "token": _replace("head_start_ray_commands", "--api-key-file /models/api-key", ""),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_cluster_file_holds_what_it_needs(name: str) -> None:
    assert cluster_faults(cluster_file(name)) == []


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_in_a_cluster_file_is_found(fault: str) -> None:
    assert cluster_faults(PLANTED[fault](cluster_file(CLUSTERS[0]))) == [fault]


@pytest.mark.parametrize("name", CLUSTERS)
def test_start_commands_are_shell(name: str) -> None:
    parts = cluster_file(name)
    commands = parts["head_start_ray_commands"] + parts.get("worker_start_ray_commands", [])
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True)
    broken = subprocess.run(["bash", "-n", "-c", commands[-1] + " '"], capture_output=True)
    assert broken.returncode != 0


def test_cluster_of_several_hosts_shares_one_token_and_has_a_group_a_host() -> None:
    parts = cluster_file("dgx-spark-cluster.yaml")
    hosts = 1 + len(parts["provider"]["worker_ips"])
    assert f"--groups {hosts} " in " ".join(parts["head_start_ray_commands"])
    assert environment("dgx-spark-cluster.yaml")["RAY_AUTH_TOKEN_PATH"].startswith("/models/")


@pytest.mark.parametrize("name", CLUSTERS)
def test_derived_file_differs_only_where_it_may(name: str) -> None:
    shipped, tested = cluster_file(name), yaml.safe_load(derived(name, docker=True))
    assert shipped.keys() == tested.keys()
    for key in shipped.keys() - {"provider", "auth", "docker"}:
        assert len(shipped[key]) == len(tested[key])
    assert shipped["docker"].keys() == tested["docker"].keys()
    assert shipped["docker"]["image"] == tested["docker"]["image"]
    assert "cuda" not in str(tested) and "192.168" not in str(tested)


def test_image_and_cluster_files_agree_on_the_variables() -> None:
    assert image_environment().items() >= VARIABLES.items()
    for name in CLUSTERS:
        assert environment(name).items() >= VARIABLES.items()


def test_compose_publishes_on_the_loopback_interface_alone() -> None:
    parts = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert compose_faults(parts) == []
    parts["services"]["lumotree"]["ports"] = ["50051:50051"]
    parts["services"]["lumotree"]["read_only"] = False
    assert compose_faults(parts) == ["ports", "root"]


IMAGE_EDITS = {
    "stages": ("\nFROM ${BASE}\n", "\n"),
    "base": ("ARG BASE=", "ARG OTHER="),
    "user": ("USER 10001:10001", "USER lumotree"),
    "hashes": ("--require-hashes ", ""),
    "entrypoint": ("CMD [", 'ENTRYPOINT ["x"]\nCMD ['),
    "programs": (" rsync ", " "),
    "path": ("ln -s /opt/lumotree/bin/ray", "ln -s /opt/ray"),
    "token": ("RAY_AUTH_MODE=token", "RAY_AUTH_MODE=disabled"),
}


def test_image_has_two_stages_a_numeric_user_hashes_and_no_entrypoint() -> None:
    assert image_faults(DOCKERFILE) == []


@pytest.mark.parametrize("fault", IMAGE_EDITS)
def test_a_fault_in_the_image_is_found(fault: str) -> None:
    old, new = IMAGE_EDITS[fault]
    assert old in DOCKERFILE
    assert fault in image_faults(DOCKERFILE.replace(old, new))


def test_libraries_of_torch_are_locked_with_hashes() -> None:
    lock = (ROOT / "requirements" / "cuda.lock").read_text()
    entries = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+ \\", entry) for entry in entries)
    assert lock.count("--hash=sha256:") >= len(entries) and "://" not in lock
    wanted = re.findall(r"^([a-z0-9-]+)", (ROOT / "requirements" / "cuda.in").read_text(), re.M)
    assert {entry.split("==")[0] for entry in entries} >= set(wanted)
    assert "nvidia-cublas==" in lock


def test_hadolint_finds_nothing_but_a_planted_fault() -> None:
    program = str(Path(sys.prefix) / "bin" / "hadolint")
    for text, status in ((DOCKERFILE, 0), (DOCKERFILE.replace("USER 10001:10001", "USER root"), 1)):
        done = subprocess.run([program, "-"], input=text, capture_output=True, text=True)
        assert done.returncode == status, done.stdout


def _verify(folder: Path, ca: str, *arguments: str) -> bool:
    command = ["openssl", "verify", "-CAfile", ca, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True).returncode == 0


def test_certificates_verify_for_their_names_and_purpose_only(tmp_path: Path) -> None:
    for name in ("one", "two"):
        command = ["bash", str(CERTS), str(tmp_path / name), "spark.local", "192.168.1.50"]
        subprocess.run(command, check=True, capture_output=True)
    one = tmp_path / "one"
    server, client = ("-purpose", "sslserver"), ("-purpose", "sslclient")
    assert _verify(one, "ca.pem", *server, "-verify_hostname", "spark.local", "server.pem")
    assert _verify(one, "ca.pem", *server, "-verify_ip", "192.168.1.50", "server.pem")
    assert _verify(one, "ca.pem", *client, "client.pem")
    assert not _verify(one, "../two/ca.pem", *server, "server.pem")
    assert not _verify(one, "ca.pem", *server, "-verify_hostname", "other.local", "server.pem")
    assert not _verify(one, "ca.pem", *server, "client.pem")
    assert not _verify(one, "ca.pem", *client, "server.pem")
    assert all(path.stat().st_mode & 0o077 == 0 for path in one.glob("*.key"))

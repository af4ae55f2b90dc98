"""Real `ray up`, a generation and `ray down` over sshd, in namespaces of their own.

Needs root and the Debian packages openssh-server, rsync, iproute2, procps; installs nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.derive import ADDRESSES, write_host
from tests.deploy.inside import OPTIONS, PROMPT
from tests.tidy.sources import ROOT

HERE = Path(__file__).parent
PROGRAMS = ("sshd", "ssh", "ssh-keygen", "rsync", "ip", "unshare", "nsenter", "pkill")
TOKEN = "0123456789abcdef" * 2
NAMESPACES = ("--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
DASHBOARD = 8265
STAGES = {"ray::DrafterHost", "ray::VerifierHost", "ray::CommitterHost"}


def missing_programs(path: str) -> list[str]:
    """Return the programs that these tests need and a search path lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def check_host(path: str) -> None:
    """Fail with what to do where this host cannot run these tests."""
    missing = missing_programs(path)
    if missing:
        pytest.fail(
            f"not found: {', '.join(missing)}; "
            "apt-get install openssh-server rsync iproute2 procps util-linux"
        )
    if os.geteuid() != 0:
        pytest.fail("namespaces with their own sshd need root; run as root, or `make test`")


def live(folder: Path, name: str, *, docker: bool, hosts: int = 1) -> dict[str, Any]:
    """Bring a cluster up, ask it, take it down; return what was seen."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    check_host(path)
    write_host(folder, name, docker, TOKEN)
    environment = {
        "PATH": f"/mnt/bin:{path}",
        "HOME": "/mnt/client",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_UP_enable_autoscaler_v2": "0",
    }
    command = [sys.executable, str(HERE / "inside.py"), str(hosts), "/mnt/result.json"]
    with (folder / "output").open("w") as output:
        subprocess.run(
            ["unshare", *NAMESPACES, str(HERE / "host.sh"), str(folder), *command],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=600,
        )
    print((folder / "output").read_text()[-6000:])
    for log in folder.glob("**/lumotree.log"):
        print(log.read_text()[-2000:])
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    print({name: value for name, value in found.items() if name.endswith("_s")})
    return found


@pytest.fixture(scope="module")
def expected() -> list[int]:
    """What `lumotree generate` gives for the same request."""
    command = [str(Path(sys.prefix) / "bin" / "lumotree"), "generate", PROMPT, "--json"]
    for name, value in OPTIONS.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    ids: list[int] = json.loads(done.stdout)["token_ids"]
    return ids


def check_life(found: dict[str, Any], expected: list[int]) -> None:
    """Check a cluster's life: same ids, closed port, nothing left."""
    assert found["ids"] == expected
    assert found["refused"] == ["UNAUTHENTICATED", "UNAUTHENTICATED"]
    assert set(found["running"]) >= STAGES
    assert {22, 6379, 50051} <= set(found["ports"])
    assert DASHBOARD not in found["ports"]
    assert f"{found['hosts']}.0/{found['hosts']}.0 lumotree" in found["status"]
    assert found["killed"] == 1 and found["again_s"] > 1
    assert found["left"] == [] and found["shared_memory"] == []
    assert found["after"] == "UNAVAILABLE"


@pytest.mark.slow
def test_one_host_comes_up_answers_and_goes(tmp_path: Path, expected: list[int]) -> None:
    found = live(tmp_path, "dgx-spark.yaml", docker=False)
    check_life(found, expected)


@pytest.mark.slow
def test_one_container_comes_up_answers_and_goes(tmp_path: Path, expected: list[int]) -> None:
    found = live(tmp_path, "dgx-spark.yaml", docker=True)
    check_life(found, expected)
    calls = (tmp_path / "docker" / "127.0.0.1" / "calls").read_text().splitlines()
    ran = [call for call in calls if call.startswith("run ")]
    assert len(ran) == 1 and calls[-1] == "stop lumotree"
    assert "--net=host lumotree/runtime:latest bash" in ran[0]


@pytest.mark.slow
def test_two_containers_come_up_answer_and_go(tmp_path: Path, expected: list[int]) -> None:
    found = live(tmp_path, "dgx-spark-cluster.yaml", docker=True, hosts=2)
    check_life(found, expected)
    assert found["running"].count("ray::VerifierHost") == 2
    for address in ADDRESSES:
        calls = (tmp_path / "docker" / address / "calls").read_text().splitlines()
        assert calls[-1] == "stop lumotree"


def test_a_host_without_the_programs_is_told_so(tmp_path: Path) -> None:
    assert missing_programs(str(tmp_path)) == list(PROGRAMS)
    with pytest.raises(pytest.fail.Exception, match="apt-get install openssh-server"):
        check_host(str(tmp_path))


def test_stand_in_refuses_an_image_with_an_entrypoint(tmp_path: Path) -> None:
    command = ["run", "--name", "x", "--entrypoint", "vllm", "image", "bash"]
    done = subprocess.run(
        [str(HERE / "docker"), *command],
        env={**os.environ, "DOCKER_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 125 and "entrypoint must be empty" in done.stderr

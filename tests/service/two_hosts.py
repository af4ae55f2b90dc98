"""Two hosts of Ray's own test cluster, one stage group each; one host dies and another comes.

Run in a process of its own, since it needs a Ray of its own: python -m tests.service.two_hosts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from services.client import Client
from services.gateway.engine import Engine
from services.gateway.requests import Finished, GenerationRequest
from services.runtime.ray_group import RayGroup
from tests.service.front import RunningServer, make_engine

PROMPT = "def fibonacci(n):\n"
HOST: dict[str, Any] = {
    "num_cpus": 1,
    "resources": {"lumotree": 1.0},
    "object_store_memory": 80 << 20,
}


@contextmanager
def cluster() -> Iterator[Any]:
    """Yield a cluster of two hosts; this process is on the first."""
    from ray.cluster_utils import Cluster

    from services.runtime.ray_session import ray

    made = Cluster(initialize_head=True, head_node_args={**HOST, "include_dashboard": False})
    try:
        made.add_node(**HOST)
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def _ids(engine: Engine, place: int, most: int = 60) -> tuple[int, ...]:
    """Generate on one group, whatever the router would choose."""
    ids = tuple(engine.codec.encode(PROMPT))
    ended: list[Finished] = []
    scheduler = engine.schedulers[place]
    scheduler.submit(
        GenerationRequest(
            request_id=engine.next_request_id(),
            prompt_ids=ids,
            sampling=engine.defaults.resolve_sampling({"seed": 7, "temperature": 0.9}),
            budget=engine.defaults.resolve_budget(len(ids), most, 0, True, ()),
            drafting=_drafting(),
            sink=lambda event: ended.append(event) if isinstance(event, Finished) else None,
        )
    )
    while scheduler.step():
        pass
    if ended[0].error is not None:
        raise ended[0].error
    return ended[0].token_ids


def _drafting() -> Any:
    from services.gateway.defaults import resolve_drafting

    return resolve_drafting("tree", None, "mtp", suffix=True)


def _serves(group: RayGroup, wanted: bool, seconds: float) -> float:
    start = time.monotonic()
    while all(group.health().values()) is not wanted:
        assert time.monotonic() - start < seconds
        time.sleep(0.02)
    return time.monotonic() - start


def scenario(hosts_of_ray: Any) -> None:
    """Compare answers of both groups before and after the second host's death."""
    local = make_engine()
    expected = _ids(local, 0)
    local.close()
    engine = make_engine(runtime="ray", groups=2)
    try:
        groups = [group for group in engine.groups if isinstance(group, RayGroup)]
        assert len(groups) == len({group._actors.host() for group in groups}) == 2
        assert [_ids(engine, place) for place in (0, 1)] == [expected, expected]
        here = hosts_of_ray.head_node.node_id
        far = next(place for place, group in enumerate(groups) if group._host != here)
        server = RunningServer(engine)
        try:
            _outlive(hosts_of_ray, server, groups[far], expected)
        finally:
            server.stop()
        assert [_ids(engine, place) for place in (0, 1)] == [expected, expected]
    finally:
        engine.close()


def _outlive(
    hosts_of_ray: Any, server: RunningServer, far: RayGroup, expected: tuple[int, ...]
) -> None:
    """Answer through the public port while a host dies and another one takes its place."""
    with Client(server.target) as client:
        assert _ask(client) == expected
        hosts_of_ray.remove_node(hosts_of_ray.worker_nodes.copy().pop(), allow_graceful=False)
        noticed = _serves(far, False, 1.0)
        for _ in range(3):
            assert _ask(client) == expected
        hosts_of_ray.add_node(**HOST)
        took = _serves(far, True, 120.0)
        assert _ask(client) == expected
    print(f"noticed after {noticed:.2f} s, served on the new host after {took:.1f} s")


def _ask(client: Client) -> tuple[int, ...]:
    answer = client.generate(PROMPT, max_tokens=60, seed=7, temperature=0.9, ignore_eos=True)
    return tuple(answer.token_ids)


if __name__ == "__main__":
    with cluster() as made_hosts:
        scenario(made_hosts)

"""Offer load to a server from a process of its own: LOADER TARGET RATE SECONDS.

Prints one JSON list: an item a call, its status code, its tokens and its milliseconds a cycle.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import grpc

from services.contract import pb

gen = pb.generation_pb2
MAX_TOKENS = 400


async def _call(stub: pb.generation_pb2_grpc.GenerationServiceStub, seed: int) -> dict[str, object]:
    request = gen.GenerateRequest(text={"text": "load"}, stop={"max_tokens": MAX_TOKENS})
    request.stop.ignore_eos, request.sampling.seed = True, seed
    begun = time.monotonic()
    try:
        answer = await stub.Generate(request)
    except grpc.aio.AioRpcError as error:
        return {"code": error.code().name, "seconds": time.monotonic() - begun}
    cycle_ms = answer.timing.decode_ms / answer.speculation.num_spec_steps
    return {"code": "OK", "tokens": answer.usage.completion_tokens, "cycle_ms": cycle_ms}


async def load(target: str, rate: float, seconds: float) -> list[dict[str, object]]:
    """Call at a rate, whatever the answers do; rate 0 calls one after the other."""
    results, tasks, begun = [], [], time.monotonic()
    channels = [grpc.aio.insecure_channel(target, (("own", i),)) for i in range(8)]
    stubs = [pb.generation_pb2_grpc.GenerationServiceStub(channel) for channel in channels]
    while (now := time.monotonic() - begun) < seconds:
        count = len(results) if rate == 0 else len(tasks)
        call = _call(stubs[count % 8], count)
        if rate == 0:
            results.append(await call)
            continue
        tasks.append(asyncio.create_task(call))
        await asyncio.sleep(max(0.0, len(tasks) / rate - now))
    results.extend(await asyncio.gather(*tasks))
    for channel in channels:
        await channel.close()
    return results


if __name__ == "__main__":
    print(json.dumps(asyncio.run(load(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))))

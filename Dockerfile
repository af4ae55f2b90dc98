# One image for aarch64 (DGX Spark, GB10) and x86-64. Build:
#   docker build -t lumotree/runtime:latest .
# The default base carries CUDA 13 for both architectures.
ARG BASE=nvcr.io/nvidia/cuda:13.0.1-devel-ubuntu24.04

FROM ${BASE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ARG PIP_OPTIONS=""
# Debian's point releases replace each other, so versions of the base's own packages float.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/lumotree
ENV PATH=/opt/lumotree/bin:${PATH}
WORKDIR /src
COPY requirements/base.lock requirements/cuda.lock requirements/torch.txt ./requirements/
# PIP_OPTIONS is split on purpose: it may hold several options, as an index of CUDA wheels.
# hadolint ignore=SC2086
RUN pip install --no-cache-dir --require-hashes -r requirements/base.lock \
 && pip install --no-cache-dir --require-hashes -r requirements/cuda.lock \
 && pip install --no-cache-dir --no-deps ${PIP_OPTIONS} -r requirements/torch.txt
COPY pyproject.toml README.md ./
COPY services ./services
COPY benchmarks ./benchmarks
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

FROM ${BASE}
# gcc and the headers compile Triton's launchers; `ray up` calls rsync and ssh in the container,
# its start commands pkill. A login shell may set PATH anew: the two links are found all the same.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
    gcc libc6-dev openssh-client procps python3 python3-dev rsync \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home --shell /bin/bash lumotree \
 && ln -s /opt/lumotree/bin/ray /opt/lumotree/bin/lumotree /usr/local/bin/
COPY --from=build /opt/lumotree /opt/lumotree
COPY models/lumo-tiny /opt/models/lumo-tiny
COPY models/prompts /opt/models/prompts
ENV PATH=/opt/lumotree/bin:${PATH} \
    HOME=/home/lumotree \
    RAY_AUTH_MODE=token \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_worker_niceness=0 \
    RAY_memory_monitor_refresh_ms=0 \
    TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas
WORKDIR /home/lumotree
USER 10001:10001
EXPOSE 50051
CMD ["lumotree", "serve", "--model", "/opt/models/lumo-tiny", "--host", "0.0.0.0"]

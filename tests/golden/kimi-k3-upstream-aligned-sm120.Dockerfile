# kimi-k3-upstream-aligned-sm120-KEY: rendered by Graft from recipe kimi-k3-upstream-aligned for sm120.
# Every input comes from a named context; `make render` also says how to build this by hand.

# The base: voipmonitor/vllm:kimi-k3-runtime-foundation-cu133-torch213-fi1ac6942-rust195-20260822-r1@sha256:03b67e53dda73c3fa317d4cb529ad38a220c51c7365ee8d54c16e5063fcc54e2.
FROM base-image AS base

# What the runtime and the builder share: the venv, over the CUDA toolkit that the base brings (/usr/local/cuda).
FROM base AS foundation
RUN --network=none \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=venv-of-image.sh,target=/run/graft/scripts/venv-of-image.sh \
    bash /run/graft/scripts/venv-of-image.sh kept python3.12 /usr/local/cuda && touch --date=@1577836800 /etc /run /tmp

# Compilers and build requirements; nothing of this stage is published.
FROM foundation AS builder
RUN --network=none \
    --mount=type=bind,from=wheels-build,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp

# b12x: the commit; the tree must be the recipe's.
FROM builder AS source-b12x
RUN --network=none \
    --mount=type=bind,from=git-b12x,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=b8c7153c3e1ca13b1e0ef373d9a382a513ab892f \
    TREE=2d466e350e518193f9edd57809e050b3aa8b8dcb \
    bash /run/graft/scripts/checkout-git.sh /run/graft/git /src/b12x

# Empty; where machines share what ccache keeps, Graft puts that in its place.
FROM scratch AS ccache-b12x
# b12x: the wheel of its own PEP 517 backend, for sm_120a alone; /out holds it.
# Secrets, because they may not be part of any key: neither the number of jobs nor a cache changes a byte.
FROM source-b12x AS build-b12x
ENV CMAKE_CUDA_ARCHITECTURES="120a" \
    CUDA_HOME="/usr/local/cuda" \
    CUTE_DSL_ARCH="sm_120a" \
    FLASHINFER_CUDA_ARCH_LIST="12.0a" \
    NVCC_GENCODE="-gencode=arch=compute_120a,code=sm_120a" \
    SOURCE_DATE_EPOCH="1577836800" \
    TORCH_CUDA_ARCH_LIST="12.0a"
RUN --network=none \
    --mount=type=cache,id=graft-ccache,target=/ccache \
    --mount=type=bind,from=ccache-b12x,target=/ccache-shared \
    --mount=type=secret,id=graft-ccache-b12x \
    --mount=type=secret,id=graft-jobs-b12x --mount=type=secret,id=graft-job-gb-python \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=build-python.py,target=/run/graft/scripts/build-python.py \
    --mount=type=bind,from=scripts,source=buildrun.py,target=/run/graft/scripts/buildrun.py \
    GRAFT_JOBS=$(test -f /run/secrets/graft-jobs-b12x && cat /run/secrets/graft-jobs-b12x) \
    GRAFT_JOB_GB=$(test -f /run/secrets/graft-job-gb-python && cat /run/secrets/graft-job-gb-python) \
    GRAFT_CCACHE_SHARED=$(test -f /run/secrets/graft-ccache-b12x && cat /run/secrets/graft-ccache-b12x) \
    CCACHE_DIR=/ccache \
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/b12x /out b12x 0+gb8c7153c3

# b12x: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-b12x AS stamped-b12x
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-b12x
COPY --from=stamped-b12x /out/ /

# vllm: the commit; the tree must be the recipe's.
FROM builder AS source-vllm
RUN --network=none \
    --mount=type=bind,from=git-vllm,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=e08d796fbe7987fc41683963c22740eaf2515a01 \
    TREE=e755f87b8e00d76e1aeacfa0835a2c7608925390 \
    bash /run/graft/scripts/checkout-git.sh /run/graft/git /src/vllm

# Empty; where machines share what ccache keeps, Graft puts that in its place.
FROM scratch AS ccache-vllm
# vllm: the wheel of its own PEP 517 backend, for sm_120a alone; /out holds it.
# Secrets, because they may not be part of any key: neither the number of jobs nor a cache changes a byte.
FROM source-vllm AS build-vllm
ENV CMAKE_CUDA_ARCHITECTURES="120a" \
    CUDA_HOME="/usr/local/cuda" \
    CUTE_DSL_ARCH="sm_120a" \
    FLASHINFER_CUDA_ARCH_LIST="12.0a" \
    NVCC_GENCODE="-gencode=arch=compute_120a,code=sm_120a" \
    SOURCE_DATE_EPOCH="1577836800" \
    TORCH_CUDA_ARCH_LIST="12.0a" \
    VLLM_TARGET_DEVICE="cuda" \
    VLLM_USE_PRECOMPILED="0"
RUN --network=none \
    --mount=type=cache,id=graft-ccache,target=/ccache \
    --mount=type=bind,from=ccache-vllm,target=/ccache-shared \
    --mount=type=secret,id=graft-ccache-vllm \
    --mount=type=secret,id=graft-jobs-vllm --mount=type=secret,id=graft-job-gb-python \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=build-python.py,target=/run/graft/scripts/build-python.py \
    --mount=type=bind,from=scripts,source=buildrun.py,target=/run/graft/scripts/buildrun.py \
    GRAFT_JOBS=$(test -f /run/secrets/graft-jobs-vllm && cat /run/secrets/graft-jobs-vllm) \
    GRAFT_JOB_GB=$(test -f /run/secrets/graft-job-gb-python && cat /run/secrets/graft-job-gb-python) \
    GRAFT_CCACHE_SHARED=$(test -f /run/secrets/graft-ccache-vllm && cat /run/secrets/graft-ccache-vllm) \
    CCACHE_DIR=/ccache \
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/vllm /out vllm 0+ge08d796fb

# vllm: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-vllm AS stamped-vllm
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-vllm
COPY --from=stamped-vllm /out/ /

# Everything that is installed, rarely changed layers first; prebuilt wheels before what is compiled here.
FROM foundation AS packages
RUN --network=none \
    --mount=type=bind,from=wheels-python,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=built-b12x,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=built-vllm,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp

# What is published: the packages, the patched files over them, and the metadata, which changes most often, last.
FROM packages AS runtime
# Not a COPY: what BuildKit keeps of a context has folders with the time of its last change.
ADD metadata.tar /
ENV CUDA_HOME="/usr/local/cuda" \
    FLASHINFER_CUDA_ARCH_LIST="12.0a" \
    LANG="C.UTF-8" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility" \
    NVIDIA_VISIBLE_DEVICES="all" \
    PATH="/opt/venv/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    TORCH_CUDA_ARCH_LIST="12.0a" \
    VIRTUAL_ENV="/opt/venv"
WORKDIR /root
ENTRYPOINT ["vllm", "serve"]
LABEL dev.graft.arch="sm120" \
      dev.graft.base="voipmonitor/vllm:kimi-k3-runtime-foundation-cu133-torch213-fi1ac6942-rust195-20260822-r1@sha256:03b67e53dda73c3fa317d4cb529ad38a220c51c7365ee8d54c16e5063fcc54e2" \
      dev.graft.component.b12x.commit="b8c7153c3e1ca13b1e0ef373d9a382a513ab892f" \
      dev.graft.component.b12x.tree="2d466e350e518193f9edd57809e050b3aa8b8dcb" \
      dev.graft.component.b12x.version="0+gb8c7153c3" \
      dev.graft.component.vllm.commit="e08d796fbe7987fc41683963c22740eaf2515a01" \
      dev.graft.component.vllm.tree="e755f87b8e00d76e1aeacfa0835a2c7608925390" \
      dev.graft.component.vllm.version="0+ge08d796fb" \
      dev.graft.cuda="13.3" \
      dev.graft.key="KEY" \
      dev.graft.recipe="kimi-k3-upstream-aligned" \
      dev.graft.unlocked="build requirements, dependencies, uv" \
      org.opencontainers.image.description="Kimi K3 upstream-aligned r36 on RTX PRO 6000, as released on 2026-08-22" \
      org.opencontainers.image.title="kimi-k3-upstream-aligned for sm120" \
      org.opencontainers.image.version="kimi-k3-upstream-aligned-sm120-KEY"

# The gate's tests over the candidate; never published.
FROM runtime AS smoke
COPY --from=smoke-tests / /graft/smoke/
ENTRYPOINT []

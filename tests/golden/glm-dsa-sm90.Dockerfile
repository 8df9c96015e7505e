# glm-dsa-sm90-KEY: rendered by Graft from recipe glm-dsa for sm90.
# Every input comes from a named context; `make render` also says how to build this by hand.

# The base: a root file system of locked Debian packages (bookworm).
FROM scratch AS base
ADD rootfs.tar /

# What the runtime and the builder share: the venv with CUDA's libraries and torch.
FROM base AS foundation
RUN --network=none \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=make-venv.sh,target=/run/graft/scripts/make-venv.sh \
    bash /run/graft/scripts/make-venv.sh python3.11 && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=wheels-cuda,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=scripts,source=cuda-links.sh,target=/run/graft/scripts/cuda-links.sh \
    bash /run/graft/scripts/cuda-links.sh /opt/venv/lib/python3.11/site-packages/nvidia/cu13 && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=wheels-torch,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp

# Compilers and build requirements; nothing of this stage is published.
FROM foundation AS builder
RUN --network=none \
    --mount=type=bind,from=builder-debs,target=/run/graft/debs \
    --mount=type=bind,from=scripts,source=install-debs.sh,target=/run/graft/scripts/install-debs.sh \
    bash /run/graft/scripts/install-debs.sh /run/graft/debs
RUN --network=none \
    --mount=type=bind,from=wheels-build,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp

# flashinfer 0.7.0.post1: the pristine sdist plus its patches; the result tree must equal the lock.
FROM builder AS source-flashinfer
RUN --network=none \
    --mount=type=bind,from=sdist-flashinfer,target=/run/graft/sdist \
    --mount=type=bind,from=patches-flashinfer,target=/run/graft/patches \
    --mount=type=bind,from=scripts,source=unpack-sdist.sh,target=/run/graft/scripts/unpack-sdist.sh \
    --mount=type=bind,from=scripts,source=apply-patches.sh,target=/run/graft/scripts/apply-patches.sh \
    bash /run/graft/scripts/unpack-sdist.sh /run/graft/sdist/flashinfer_python-0.7.0.post1.tar.gz /src/flashinfer \
    && WORKTREE=/src/flashinfer PATCHES=/run/graft/patches \
       SOURCE_DATE_EPOCH=1577836800 PRISTINE_TREE=66f72d58e8dcab25a476ca6edbb5340a9e62a6d5 RESULT_TREE=1e48905de467d67a3fc043300dbdd18e261d8104 \
       bash /run/graft/scripts/apply-patches.sh

# Empty; where machines share what ccache keeps, Graft puts that in its place.
FROM scratch AS ccache-flashinfer
# flashinfer: its wheel, and norm, page, rope compiled for sm_90a alone; /out holds the wheels.
# Secrets, because they may not be part of any key: neither the number of jobs nor a cache changes a byte.
FROM source-flashinfer AS build-flashinfer
ENV CUDA_HOME=/opt/venv/lib/python3.11/site-packages/nvidia/cu13 FLASHINFER_CUDA_ARCH_LIST=9.0a SOURCE_DATE_EPOCH=1577836800
RUN --network=none \
    --mount=type=bind,from=scripts,source=build-flashinfer-aot.py,target=/run/graft/scripts/build-flashinfer-aot.py \
    --mount=type=bind,from=scripts,source=buildrun.py,target=/run/graft/scripts/buildrun.py \
    --mount=type=bind,from=fatbin,target=/run/graft/smoke/lib \
    /opt/venv/bin/python /run/graft/scripts/build-flashinfer-aot.py wheel /src/flashinfer /out --version 0.7.0.post1
RUN --network=none \
    --mount=type=cache,id=graft-ccache,target=/ccache \
    --mount=type=bind,from=ccache-flashinfer,target=/ccache-shared \
    --mount=type=secret,id=graft-ccache-flashinfer \
    --mount=type=secret,id=graft-jobs-flashinfer --mount=type=secret,id=graft-job-gb-flashinfer-aot \
    --mount=type=bind,from=scripts,source=build-flashinfer-aot.py,target=/run/graft/scripts/build-flashinfer-aot.py \
    --mount=type=bind,from=scripts,source=buildrun.py,target=/run/graft/scripts/buildrun.py \
    --mount=type=bind,from=fatbin,target=/run/graft/smoke/lib \
    GRAFT_JOBS=$(test -f /run/secrets/graft-jobs-flashinfer && cat /run/secrets/graft-jobs-flashinfer) \
    GRAFT_JOB_GB=$(test -f /run/secrets/graft-job-gb-flashinfer-aot && cat /run/secrets/graft-job-gb-flashinfer-aot) \
    GRAFT_CCACHE_SHARED=$(test -f /run/secrets/graft-ccache-flashinfer && cat /run/secrets/graft-ccache-flashinfer) \
    CCACHE_DIR=/ccache \
    /opt/venv/bin/python /run/graft/scripts/build-flashinfer-aot.py modules /src/flashinfer /out \
      --version 0.7.0.post1 norm page rope

# flashinfer: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-flashinfer AS stamped-flashinfer
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-flashinfer
COPY --from=stamped-flashinfer /out/ /

# Everything that is installed, rarely changed layers first; prebuilt wheels before what is compiled here.
FROM foundation AS packages
RUN --network=none \
    --mount=type=bind,from=wheels-python,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=wheels-vllm,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=built-flashinfer,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp

# vllm: only the patched files of its wheel and the RECORD that fits them; the result tree must equal the lock.
FROM builder AS overlay-vllm
COPY --from=packages /opt/venv/lib/python3.11/site-packages/vllm-0.32.0.dist-info/RECORD /site/vllm-0.32.0.dist-info/RECORD
COPY --from=packages /opt/venv/lib/python3.11/site-packages/vllm/model_executor/models/config.py /site/vllm/model_executor/models/config.py
COPY --from=packages /opt/venv/lib/python3.11/site-packages/vllm/model_executor/models/deepseek_mtp.py /site/vllm/model_executor/models/deepseek_mtp.py
COPY --from=packages /opt/venv/lib/python3.11/site-packages/vllm/models/deepseek_v32/nvidia/mtp.py /site/vllm/models/deepseek_v32/nvidia/mtp.py
RUN --network=none \
    --mount=type=bind,from=wheels-vllm,target=/run/graft/wheels \
    --mount=type=bind,from=patches-vllm,target=/run/graft/patches \
    --mount=type=bind,from=scripts,source=apply-patches.sh,target=/run/graft/scripts/apply-patches.sh \
    --mount=type=bind,from=scripts,source=overlay-wheel.py,target=/run/graft/scripts/overlay-wheel.py \
    SOURCE_DATE_EPOCH=1577836800 python3.11 /run/graft/scripts/overlay-wheel.py --wheel /run/graft/wheels/vllm-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl --site /site \
      --patches /run/graft/patches --pristine faae35b32fcc77f662c4e8f2199bf6fc33cd691b --result 6b5b69003b5a4bfb37020961665ab3a75eb11e3c --out /out \
    && find /out -exec touch --no-dereference --date=@1577836800 {} +

# What is published: the packages, the patched files over them, and the metadata, which changes most often, last.
FROM packages AS runtime
COPY --from=overlay-vllm /out/ /opt/venv/lib/python3.11/site-packages/
# Not a COPY: what BuildKit keeps of a context has folders with the time of its last change.
ADD metadata.tar /
ENV CUDA_HOME="/opt/venv/lib/python3.11/site-packages/nvidia/cu13" \
    FLASHINFER_CUDA_ARCH_LIST="9.0a" \
    LANG="C.UTF-8" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility" \
    NVIDIA_VISIBLE_DEVICES="all" \
    PATH="/opt/venv/bin:/opt/venv/lib/python3.11/site-packages/nvidia/cu13/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    TORCH_CUDA_ARCH_LIST="9.0a" \
    VIRTUAL_ENV="/opt/venv" \
    VLLM_NO_USAGE_STATS="1"
WORKDIR /root
ENTRYPOINT ["vllm", "serve"]
LABEL dev.graft.arch="sm90" \
      dev.graft.component.flashinfer.version="0.7.0.post1" \
      dev.graft.component.nccl.version="2.30.4" \
      dev.graft.component.torch.version="2.13.0" \
      dev.graft.component.vllm.commit="5df63a720" \
      dev.graft.component.vllm.version="0.32.0" \
      dev.graft.cuda="13.0" \
      dev.graft.environment="sha256:KEY" \
      dev.graft.key="KEY" \
      dev.graft.lock="sha256:KEY" \
      dev.graft.overlay.vllm="git-tree:6b5b69003b5a4bfb37020961665ab3a75eb11e3c" \
      dev.graft.patch.flashinfer.norm-scale-after-wait="sha256:KEY" \
      dev.graft.patch.vllm.glm-dsa-dcp-defaults="sha256:KEY" \
      dev.graft.patch.vllm.mtp-indexer-scales="sha256:KEY" \
      dev.graft.recipe="glm-dsa" \
      org.opencontainers.image.description="GLM-5.x DSA models on Hopper and Blackwell, with decode context parallelism and MTP" \
      org.opencontainers.image.title="glm-dsa for sm90" \
      org.opencontainers.image.version="glm-dsa-sm90-KEY"

# The gate's tests over the candidate; never published.
FROM runtime AS smoke
COPY --from=smoke-tests / /graft/smoke/
ENTRYPOINT []

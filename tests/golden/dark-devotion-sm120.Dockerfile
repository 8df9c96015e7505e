# dark-devotion-sm120-KEY: rendered by Graft from recipe dark-devotion for sm120.
# Every input comes from a named context; `make render` also says how to build this by hand.

# The base: nvidia/cuda:13.2.1-cudnn-devel-ubuntu24.04, by tag only.
# Its files without its configuration: an ENV of a base can be changed and never taken back, and these must not be inherited:
# NCCL_GRAPH_FILE, NCCL_GRAPH_DUMP_FILE.
FROM scratch AS base
COPY --from=base-image / /
RUN --network=none \
    --mount=type=bind,from=base-debs,target=/run/graft/debs \
    --mount=type=bind,from=scripts,source=install-debs.sh,target=/run/graft/scripts/install-debs.sh \
    --mount=type=bind,from=scripts,source=check-debs.sh,target=/run/graft/scripts/check-debs.sh \
    sh /run/graft/scripts/install-debs.sh /run/graft/debs \
    && sh /run/graft/scripts/check-debs.sh libcublas13-cuda-13=13.4.1.2-1 \
      libcublas13-dev-cuda-13=13.4.1.2-1 \
      cublas-cuda-13=13.4.1.2-1 \
      libcudnn9-cuda-13=9.22.0.52-1 \
      libcudnn9-dev-cuda-13=9.22.0.52-1 \
      libcudnn9-headers-cuda-13=9.22.0.52-1 \
      libcudnn9-static-cuda-13=9.22.0.52-1 \
      cuda-compat-13-2=595.71.05-1ubuntu1

# What the runtime and the builder share: the venv, over the CUDA toolkit that the base brings (/usr/local/cuda).
FROM base AS foundation
RUN --network=none \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=venv-of-image.sh,target=/run/graft/scripts/venv-of-image.sh \
    bash /run/graft/scripts/venv-of-image.sh new python3.12 /usr/local/cuda && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=wheels-cuda,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp
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
    sh /run/graft/scripts/install-debs.sh /run/graft/debs
RUN --network=none \
    --mount=type=bind,from=wheels-build,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp

# cutlass: the commit.
FROM builder AS source-cutlass
RUN --network=none \
    --mount=type=bind,from=git-cutlass,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=d80a4e53b52b42550659a8696dab32705265e324 \
    bash /run/graft/scripts/checkout-git.sh /run/graft/git /src/cutlass

# b12x: the commit.
FROM builder AS source-b12x
RUN --network=none \
    --mount=type=bind,from=git-b12x,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=5af873a7b6c81fbf533ef96bede13fbf4744ad2a \
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/b12x /out b12x 0+g5af873a7b

# b12x: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-b12x AS stamped-b12x
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-b12x
COPY --from=stamped-b12x /out/ /

# deepgemm: the commit.
FROM builder AS source-deepgemm
RUN --network=none \
    --mount=type=bind,from=git-deepgemm,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=9ca30487a6d1a484757f2d87f532c5f6707b9f25 \
    bash /run/graft/scripts/checkout-git.sh /run/graft/git /src/deepgemm

# Empty; where machines share what ccache keeps, Graft puts that in its place.
FROM scratch AS ccache-deepgemm
# deepgemm: the wheel of its own PEP 517 backend, for sm_120a alone; /out holds it.
# Secrets, because they may not be part of any key: neither the number of jobs nor a cache changes a byte.
FROM source-deepgemm AS build-deepgemm
ENV CMAKE_CUDA_ARCHITECTURES="120a" \
    CUDA_HOME="/usr/local/cuda" \
    CUTE_DSL_ARCH="sm_120a" \
    DG_FORCE_BUILD="1" \
    DG_USE_LOCAL_VERSION="1" \
    FLASHINFER_CUDA_ARCH_LIST="12.0a" \
    NVCC_GENCODE="-gencode=arch=compute_120a,code=sm_120a" \
    SOURCE_DATE_EPOCH="1577836800" \
    TORCH_CUDA_ARCH_LIST="12.0a"
RUN --network=none \
    --mount=type=cache,id=graft-ccache,target=/ccache \
    --mount=type=bind,from=ccache-deepgemm,target=/ccache-shared \
    --mount=type=secret,id=graft-ccache-deepgemm \
    --mount=type=secret,id=graft-jobs-deepgemm --mount=type=secret,id=graft-job-gb-python \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=build-python.py,target=/run/graft/scripts/build-python.py \
    --mount=type=bind,from=scripts,source=buildrun.py,target=/run/graft/scripts/buildrun.py \
    GRAFT_JOBS=$(test -f /run/secrets/graft-jobs-deepgemm && cat /run/secrets/graft-jobs-deepgemm) \
    GRAFT_JOB_GB=$(test -f /run/secrets/graft-job-gb-python && cat /run/secrets/graft-job-gb-python) \
    GRAFT_CCACHE_SHARED=$(test -f /run/secrets/graft-ccache-deepgemm && cat /run/secrets/graft-ccache-deepgemm) \
    CCACHE_DIR=/ccache \
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/deepgemm /out deep-gemm 0+g9ca30487a

# deepgemm: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-deepgemm AS stamped-deepgemm
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-deepgemm
COPY --from=stamped-deepgemm /out/ /

# flashinfer: the commit.
FROM builder AS source-flashinfer
RUN --network=none \
    --mount=type=bind,from=git-flashinfer,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=9c5ed7c194e7412780862491742fc655daaad6ac \
    bash /run/graft/scripts/checkout-git.sh /run/graft/git /src/flashinfer

# Empty; where machines share what ccache keeps, Graft puts that in its place.
FROM scratch AS ccache-flashinfer
# flashinfer: the wheel of its own PEP 517 backend, for sm_120f alone; /out holds it.
# Secrets, because they may not be part of any key: neither the number of jobs nor a cache changes a byte.
FROM source-flashinfer AS build-flashinfer
ENV CMAKE_CUDA_ARCHITECTURES="120f" \
    CUDA_HOME="/usr/local/cuda" \
    CUTE_DSL_ARCH="sm_120f" \
    FLASHINFER_CUDA_ARCH_LIST="12.0f" \
    FLASHINFER_LOCAL_VERSION="cu132" \
    NVCC_GENCODE="-gencode=arch=compute_120f,code=sm_120f" \
    SOURCE_DATE_EPOCH="1577836800" \
    TORCH_CUDA_ARCH_LIST="12.0f"
RUN --network=none \
    --mount=type=cache,id=graft-ccache,target=/ccache \
    --mount=type=bind,from=ccache-flashinfer,target=/ccache-shared \
    --mount=type=secret,id=graft-ccache-flashinfer \
    --mount=type=secret,id=graft-jobs-flashinfer --mount=type=secret,id=graft-job-gb-python \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=build-python.py,target=/run/graft/scripts/build-python.py \
    --mount=type=bind,from=scripts,source=buildrun.py,target=/run/graft/scripts/buildrun.py \
    GRAFT_JOBS=$(test -f /run/secrets/graft-jobs-flashinfer && cat /run/secrets/graft-jobs-flashinfer) \
    GRAFT_JOB_GB=$(test -f /run/secrets/graft-job-gb-python && cat /run/secrets/graft-job-gb-python) \
    GRAFT_CCACHE_SHARED=$(test -f /run/secrets/graft-ccache-flashinfer && cat /run/secrets/graft-ccache-flashinfer) \
    CCACHE_DIR=/ccache \
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/flashinfer /out flashinfer-python 0.6.13+cu132

# flashinfer: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-flashinfer AS stamped-flashinfer
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-flashinfer
COPY --from=stamped-flashinfer /out/ /

# nccl: the commit.
FROM builder AS source-nccl
RUN --network=none \
    --mount=type=bind,from=git-nccl,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=dfab7c1ace32da250ba97757879429c341b7bcf9 \
    bash /run/graft/scripts/checkout-git.sh /run/graft/git /src/nccl

# Empty; where machines share what ccache keeps, Graft puts that in its place.
FROM scratch AS ccache-nccl
# nccl: its library by its own Makefile, for sm_120a alone, as the wheel it stands in for; /out holds it.
# Secrets, because they may not be part of any key: neither the number of jobs nor a cache changes a byte.
FROM source-nccl AS build-nccl
ENV CMAKE_CUDA_ARCHITECTURES="120a" \
    CUDA_HOME="/usr/local/cuda" \
    CUTE_DSL_ARCH="sm_120a" \
    FLASHINFER_CUDA_ARCH_LIST="12.0a" \
    NVCC_GENCODE="-gencode=arch=compute_120a,code=sm_120a" \
    SOURCE_DATE_EPOCH="1577836800" \
    TORCH_CUDA_ARCH_LIST="12.0a"
RUN --network=none \
    --mount=type=cache,id=graft-ccache,target=/ccache \
    --mount=type=bind,from=ccache-nccl,target=/ccache-shared \
    --mount=type=secret,id=graft-ccache-nccl \
    --mount=type=secret,id=graft-jobs-nccl --mount=type=secret,id=graft-job-gb-make \
    --mount=type=bind,from=scripts,source=build-make.py,target=/run/graft/scripts/build-make.py \
    --mount=type=bind,from=scripts,source=buildrun.py,target=/run/graft/scripts/buildrun.py \
    GRAFT_JOBS=$(test -f /run/secrets/graft-jobs-nccl && cat /run/secrets/graft-jobs-nccl) \
    GRAFT_JOB_GB=$(test -f /run/secrets/graft-job-gb-make && cat /run/secrets/graft-job-gb-make) \
    GRAFT_CCACHE_SHARED=$(test -f /run/secrets/graft-ccache-nccl && cat /run/secrets/graft-ccache-nccl) \
    CCACHE_DIR=/ccache \
    /opt/venv/bin/python /run/graft/scripts/build-make.py /src/nccl /out --distribution nvidia-nccl-cu13 --version 2.30.4

# nccl: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-nccl AS stamped-nccl
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-nccl
COPY --from=stamped-nccl /out/ /

# vllm: the commit, its heads merged onto it in this order, then its patches.
#   pull 31 at 000807e2b0e33277ac6b3ae51ae2e52d8472c9ab
FROM builder AS source-vllm
RUN --network=none \
    --mount=type=bind,from=git-vllm,target=/run/graft/git \
    --mount=type=bind,from=lost-vllm,target=/run/graft/patches \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=df8ad3b202c84937a23cfa9d93f7a3677da8ecde \
    HEADS="000807e2b0e33277ac6b3ae51ae2e52d8472c9ab" \
    PATCHES="8231580f5c7cd8a9f17508058a818f4809a2a3dbff49e3b4a1014b4d634df504:mtp-topk-scores.patch" \
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
    --mount=type=bind,from=source-cutlass,source=/src/cutlass,target=/src/cutlass \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=build-python.py,target=/run/graft/scripts/build-python.py \
    --mount=type=bind,from=scripts,source=buildrun.py,target=/run/graft/scripts/buildrun.py \
    GRAFT_JOBS=$(test -f /run/secrets/graft-jobs-vllm && cat /run/secrets/graft-jobs-vllm) \
    GRAFT_JOB_GB=$(test -f /run/secrets/graft-job-gb-python && cat /run/secrets/graft-job-gb-python) \
    GRAFT_CCACHE_SHARED=$(test -f /run/secrets/graft-ccache-vllm && cat /run/secrets/graft-ccache-vllm) \
    CCACHE_DIR=/ccache \
    VLLM_CUTLASS_SRC_DIR=/src/cutlass \
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/vllm /out vllm 0.11.2.dev279+dark.devotion.df8ad3b.b12x5af873a.fi9c5ed7c.dcpglobaltopk.mtptopkscores.cu132.20260621

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
    --mount=type=bind,from=built-deepgemm,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=built-flashinfer,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=built-nccl,target=/run/graft/wheels \
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
    FLASHINFER_CUDA_ARCH_LIST="12.0f" \
    LANG="C.UTF-8" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility" \
    NVIDIA_VISIBLE_DEVICES="all" \
    PATH="/opt/venv/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    TORCH_CUDA_ARCH_LIST="12.0a" \
    VIRTUAL_ENV="/opt/venv"
WORKDIR /root
ENTRYPOINT ["vllm", "serve"]
LABEL dev.graft.arch="sm120" \
      dev.graft.base="nvidia/cuda:13.2.1-cudnn-devel-ubuntu24.04" \
      dev.graft.component.b12x.commit="5af873a7b6c81fbf533ef96bede13fbf4744ad2a" \
      dev.graft.component.b12x.version="0+g5af873a7b" \
      dev.graft.component.cublas.version="13.4.1.2-1" \
      dev.graft.component.cuda-bindings.version="13.2.0" \
      dev.graft.component.cuda-compat.version="595.71.05-1ubuntu1" \
      dev.graft.component.cuda-python.version="13.2.0" \
      dev.graft.component.cudnn.version="9.22.0.52-1" \
      dev.graft.component.cutlass-dsl.version="4.5.2" \
      dev.graft.component.cutlass.commit="d80a4e53b52b42550659a8696dab32705265e324" \
      dev.graft.component.cutlass.version="0+gd80a4e53b" \
      dev.graft.component.deepgemm.commit="9ca30487a6d1a484757f2d87f532c5f6707b9f25" \
      dev.graft.component.deepgemm.version="0+g9ca30487a" \
      dev.graft.component.flashinfer.commit="9c5ed7c194e7412780862491742fc655daaad6ac" \
      dev.graft.component.flashinfer.version="0.6.13+cu132" \
      dev.graft.component.humming.version="0.1.4" \
      dev.graft.component.nccl.commit="dfab7c1ace32da250ba97757879429c341b7bcf9" \
      dev.graft.component.nccl.version="2.30.4" \
      dev.graft.component.numba.version="0.65.0" \
      dev.graft.component.tilelang.version="0.1.9" \
      dev.graft.component.tokenspeed-mla.version="0.1.2" \
      dev.graft.component.torch.version="2.12.0+cu132" \
      dev.graft.component.torchvision.version="0.27.0+cu132" \
      dev.graft.component.tvm-ffi.version="0.1.9" \
      dev.graft.component.vllm.commit="df8ad3b202c84937a23cfa9d93f7a3677da8ecde" \
      dev.graft.component.vllm.pulls="31@000807e2b0e33277ac6b3ae51ae2e52d8472c9ab" \
      dev.graft.component.vllm.version="0.11.2.dev279+dark.devotion.df8ad3b.b12x5af873a.fi9c5ed7c.dcpglobaltopk.mtptopkscores.cu132.20260621" \
      dev.graft.cuda="13.2" \
      dev.graft.key="KEY" \
      dev.graft.launch="B12X_MOE_FORCE_A16=1 VLLM_DCP_GLOBAL_TOPK=1 VLLM_DCP_SHARD_DRAFT=1 VLLM_USE_B12X_SPARSE_INDEXER=1 --tensor-parallel-size 8 --decode-context-parallel-size 4 --dcp-comm-backend ag_rs --attention-backend B12X_MLA_SPARSE --moe-backend b12x --kv-cache-dtype fp8 --max-model-len 256000 --max-num-seqs 4 --max-num-batched-tokens 8192 --max-cudagraph-capture-size 24 --speculative-config.method=mtp --speculative-config.num_speculative_tokens=3" \
      dev.graft.patch.vllm.mtp-topk-scores="sha256:8231580f5c7cd8a9f17508058a818f4809a2a3dbff49e3b4a1014b4d634df504" \
      dev.graft.recipe="dark-devotion" \
      dev.graft.unlocked="base, base packages, build requirements, builder packages, cublas cublas-cuda-13, cublas libcublas13-cuda-13, cublas libcublas13-dev-cuda-13, cuda-bindings, cuda-compat cuda-compat-13-2, cuda-python, cudnn libcudnn9-cuda-13, cudnn libcudnn9-dev-cuda-13, cudnn libcudnn9-headers-cuda-13, cudnn libcudnn9-static-cuda-13, cutlass-dsl, dependencies, humming, numba, tilelang, tokenspeed-mla, torch, torchvision, tvm-ffi, uv" \
      org.opencontainers.image.description="Dark Devotion, GLM-5.2 NVFP4 on RTX PRO 6000 with decode context parallelism and MTP, as released on 2026-06-21" \
      org.opencontainers.image.title="dark-devotion for sm120" \
      org.opencontainers.image.version="dark-devotion-sm120-KEY"

# The gate's tests over the candidate; never published.
FROM runtime AS smoke
COPY --from=smoke-tests / /graft/smoke/
ENTRYPOINT []

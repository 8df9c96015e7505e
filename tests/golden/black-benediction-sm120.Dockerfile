# black-benediction-sm120-KEY: rendered by Graft from recipe black-benediction for sm120.
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
      cublas-cuda-13=13.4.1.2-1

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
    COMMIT=d90d89c8353adabb56cc84bd3924ef811ef8d877 \
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/b12x /out b12x 0+gd90d89c83

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
    COMMIT=aced12c2c8882a945c568ace9d4a7e5778aae410 \
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/deepgemm /out deep-gemm 0+gaced12c2c

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
    COMMIT=b41aa8dd2fb93c49b1c6134bd1953040f8089d51 \
    bash /run/graft/scripts/checkout-git.sh /run/graft/git /src/flashinfer

# Empty; where machines share what ccache keeps, Graft puts that in its place.
FROM scratch AS ccache-flashinfer
# flashinfer: the wheel of its own PEP 517 backend, for sm_120a alone; /out holds it.
# Secrets, because they may not be part of any key: neither the number of jobs nor a cache changes a byte.
FROM source-flashinfer AS build-flashinfer
ENV CMAKE_CUDA_ARCHITECTURES="120a" \
    CUDA_HOME="/usr/local/cuda" \
    CUTE_DSL_ARCH="sm_120a" \
    FLASHINFER_CUDA_ARCH_LIST="12.0a" \
    FLASHINFER_LOCAL_VERSION="cu132" \
    NVCC_GENCODE="-gencode=arch=compute_120a,code=sm_120a" \
    SOURCE_DATE_EPOCH="1577836800" \
    TORCH_CUDA_ARCH_LIST="12.0a"
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/flashinfer /out flashinfer-python 0+gb41aa8dd2

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

# vllm: the commit.
FROM builder AS source-vllm
RUN --network=none \
    --mount=type=bind,from=git-vllm,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=bb6c5b7351fceb9d524e0d43b957415ffefcb981 \
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/vllm /out vllm 0.11.2.dev279+black.benediction.b12xpr11.cu132.20260608

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
      dev.graft.base="nvidia/cuda:13.2.1-cudnn-devel-ubuntu24.04" \
      dev.graft.component.b12x.commit="d90d89c8353adabb56cc84bd3924ef811ef8d877" \
      dev.graft.component.b12x.version="0+gd90d89c83" \
      dev.graft.component.cublas.version="13.4.1.2-1" \
      dev.graft.component.cutlass.commit="d80a4e53b52b42550659a8696dab32705265e324" \
      dev.graft.component.cutlass.version="0+gd80a4e53b" \
      dev.graft.component.deepgemm.commit="aced12c2c8882a945c568ace9d4a7e5778aae410" \
      dev.graft.component.deepgemm.version="0+gaced12c2c" \
      dev.graft.component.flashinfer.commit="b41aa8dd2fb93c49b1c6134bd1953040f8089d51" \
      dev.graft.component.flashinfer.version="0+gb41aa8dd2" \
      dev.graft.component.nccl.commit="dfab7c1ace32da250ba97757879429c341b7bcf9" \
      dev.graft.component.nccl.version="2.30.4" \
      dev.graft.component.torch.version="2.12.0+cu132" \
      dev.graft.component.torchvision.version="0.27.0+cu132" \
      dev.graft.component.vllm.commit="bb6c5b7351fceb9d524e0d43b957415ffefcb981" \
      dev.graft.component.vllm.version="0.11.2.dev279+black.benediction.b12xpr11.cu132.20260608" \
      dev.graft.cuda="13.2" \
      dev.graft.key="KEY" \
      dev.graft.recipe="black-benediction" \
      dev.graft.unlocked="base, base packages, build requirements, builder packages, cublas cublas-cuda-13, cublas libcublas13-cuda-13, cublas libcublas13-dev-cuda-13, dependencies, torch, torchvision, uv" \
      org.opencontainers.image.description="Black Benediction with B12X pull request 11, as released on 2026-06-08" \
      org.opencontainers.image.title="black-benediction for sm120" \
      org.opencontainers.image.version="black-benediction-sm120-KEY"

# The gate's tests over the candidate; never published.
FROM runtime AS smoke
COPY --from=smoke-tests / /graft/smoke/
ENTRYPOINT []

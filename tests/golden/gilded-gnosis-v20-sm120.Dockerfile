# gilded-gnosis-v20-sm120-KEY: rendered by Graft from recipe gilded-gnosis-v20 for sm120.
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
    COMMIT=e6233cbac5d7c7a865c19c91cd684ceece19513c \
    bash /run/graft/scripts/checkout-git.sh /run/graft/git /src/cutlass

# b12x: the commit, its heads merged onto it in this order; the tree must be the recipe's.
#   pull 144 at c8d5f33b4a682a4a0b06e29c816aa24e28313473
#   an unnamed head
#   an unnamed head
FROM builder AS source-b12x
RUN --network=none \
    --mount=type=bind,from=git-b12x,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=7cecbb2c4819636ae7f05f8b116f2c45ee2cff7b \
    HEADS="c8d5f33b4a682a4a0b06e29c816aa24e28313473 \
      refs/graft/head/2 \
      refs/graft/head/3" \
    TREE=cd3ce190f0f1917402cdfd5773724267cc9a63f8 \
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/b12x /out b12x 1.2.1

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
    COMMIT=a6b593d2826719dcf4892609af7b84ee23aaf32a \
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/deepgemm /out deep-gemm 0+ga6b593d28

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
    COMMIT=1ac6942776b383c6b03c7a5805a22e72a3e3349f \
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/flashinfer /out flashinfer-python 0+g1ac694277

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

# vllm: the commit, its heads merged onto it in this order; the tree must be the recipe's.
#   pull 145 at 99bf3f13f13012b72d6d67e49572d686b45b2833
#   pull 256 at 48e9d0f75d96db61429cbe7fe4fccb96739c58d6
#   pull 188 at aa75b01c476ffb5fc728232546fe5c215e3728ec
#   pull 229 at 1a2b01f43fbc151239c437e918dfdc27681ce4e7
#   pull 213 at 5f144274d6e092237f4f4f437b7e9d3aaa427157
#   pull 214 at 8d989f18c2845e514313e80f65b07087b09d6a67
#   pull 217 at bde9a133774e38a54511696cef1ac10b16ef700b
#   pull 218 at 3b89c7a113f92522aa07cc3271422c04e458d771
#   pull 230 at 9401f9d8916f3bdf34123d2d493a918b748c8132
#   pull 234 at eaf24cc15f313c4b15afabb3f902cfe17f19f28f
#   pull 235 at 54349f9ce6d32a68c7c736f2ac3ac597afd6e208
#   pull 245 at 9dbd6d00b0340da173b61affb961954090632dec
#   pull 248 at 85bc9770c94394fb070f3f9311d68bcaca6a354d
#   pull 251 at c66ce7327ee586e5b600b9d7e12db30e93e8ec96
#   pull 253 at 1772842af39788286634e168ef766e15add83869
#   pull 252 at e3317de2336fc84396d7541950542c79b62102ae
#   pull 254 at 72c9470982ad9b22e0eb575db38dfa158daeb730
#   pull 255 at d1b7bbeb78da068ab0a505bd09505f6637cddcd9
#   pull 258 at 63b77c8031e02d23a2c464627196cd5663f7116f
#   pull 280 at 8e7be4d5c97fb86d983bd5f83c825153452efaec
#   pull 281 at 126039af3cc28c667f3b13da3ee0d3abefdd12fe
FROM builder AS source-vllm
RUN --network=none \
    --mount=type=bind,from=git-vllm,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=e2666d9a65f41fc376607531453cbd57c4c71016 \
    HEADS="99bf3f13f13012b72d6d67e49572d686b45b2833 \
      48e9d0f75d96db61429cbe7fe4fccb96739c58d6 \
      aa75b01c476ffb5fc728232546fe5c215e3728ec \
      1a2b01f43fbc151239c437e918dfdc27681ce4e7 \
      5f144274d6e092237f4f4f437b7e9d3aaa427157 \
      8d989f18c2845e514313e80f65b07087b09d6a67 \
      bde9a133774e38a54511696cef1ac10b16ef700b \
      3b89c7a113f92522aa07cc3271422c04e458d771 \
      9401f9d8916f3bdf34123d2d493a918b748c8132 \
      eaf24cc15f313c4b15afabb3f902cfe17f19f28f \
      54349f9ce6d32a68c7c736f2ac3ac597afd6e208 \
      9dbd6d00b0340da173b61affb961954090632dec \
      85bc9770c94394fb070f3f9311d68bcaca6a354d \
      c66ce7327ee586e5b600b9d7e12db30e93e8ec96 \
      1772842af39788286634e168ef766e15add83869 \
      e3317de2336fc84396d7541950542c79b62102ae \
      72c9470982ad9b22e0eb575db38dfa158daeb730 \
      d1b7bbeb78da068ab0a505bd09505f6637cddcd9 \
      63b77c8031e02d23a2c464627196cd5663f7116f \
      8e7be4d5c97fb86d983bd5f83c825153452efaec \
      126039af3cc28c667f3b13da3ee0d3abefdd12fe" \
    TREE=4d006a43928cdee01306691a766542c1e9bebb59 \
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/vllm /out vllm 0+ge2666d9a6

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
      dev.graft.component.b12x.commit="7cecbb2c4819636ae7f05f8b116f2c45ee2cff7b" \
      dev.graft.component.b12x.pulls="144@c8d5f33b4a682a4a0b06e29c816aa24e28313473 ?@? ?@?" \
      dev.graft.component.b12x.tree="cd3ce190f0f1917402cdfd5773724267cc9a63f8" \
      dev.graft.component.b12x.version="1.2.1" \
      dev.graft.component.cublas.version="13.4.1.2-1" \
      dev.graft.component.cutlass.commit="e6233cbac5d7c7a865c19c91cd684ceece19513c" \
      dev.graft.component.cutlass.version="0+ge6233cbac" \
      dev.graft.component.deepgemm.commit="a6b593d2826719dcf4892609af7b84ee23aaf32a" \
      dev.graft.component.deepgemm.version="0+ga6b593d28" \
      dev.graft.component.flashinfer.commit="1ac6942776b383c6b03c7a5805a22e72a3e3349f" \
      dev.graft.component.flashinfer.version="0+g1ac694277" \
      dev.graft.component.nccl.commit="dfab7c1ace32da250ba97757879429c341b7bcf9" \
      dev.graft.component.nccl.version="2.30.4" \
      dev.graft.component.torch.version="2.12.0+cu132" \
      dev.graft.component.vllm.commit="e2666d9a65f41fc376607531453cbd57c4c71016" \
      dev.graft.component.vllm.pulls="145@99bf3f13f13012b72d6d67e49572d686b45b2833 256@48e9d0f75d96db61429cbe7fe4fccb96739c58d6 188@aa75b01c476ffb5fc728232546fe5c215e3728ec 229@1a2b01f43fbc151239c437e918dfdc27681ce4e7 213@5f144274d6e092237f4f4f437b7e9d3aaa427157 214@8d989f18c2845e514313e80f65b07087b09d6a67 217@bde9a133774e38a54511696cef1ac10b16ef700b 218@3b89c7a113f92522aa07cc3271422c04e458d771 230@9401f9d8916f3bdf34123d2d493a918b748c8132 234@eaf24cc15f313c4b15afabb3f902cfe17f19f28f 235@54349f9ce6d32a68c7c736f2ac3ac597afd6e208 245@9dbd6d00b0340da173b61affb961954090632dec 248@85bc9770c94394fb070f3f9311d68bcaca6a354d 251@c66ce7327ee586e5b600b9d7e12db30e93e8ec96 253@1772842af39788286634e168ef766e15add83869 252@e3317de2336fc84396d7541950542c79b62102ae 254@72c9470982ad9b22e0eb575db38dfa158daeb730 255@d1b7bbeb78da068ab0a505bd09505f6637cddcd9 258@63b77c8031e02d23a2c464627196cd5663f7116f 280@8e7be4d5c97fb86d983bd5f83c825153452efaec 281@126039af3cc28c667f3b13da3ee0d3abefdd12fe" \
      dev.graft.component.vllm.tree="4d006a43928cdee01306691a766542c1e9bebb59" \
      dev.graft.component.vllm.version="0+ge2666d9a6" \
      dev.graft.cuda="13.2" \
      dev.graft.key="KEY" \
      dev.graft.recipe="gilded-gnosis-v20" \
      dev.graft.unlocked="b12x head 2, b12x head 3, base, base packages, build requirements, builder packages, cublas cublas-cuda-13, cublas libcublas13-cuda-13, cublas libcublas13-dev-cuda-13, dependencies, torch, uv" \
      org.opencontainers.image.description="Gilded Gnosis v20 r34, GLM-5.2 on RTX PRO 6000, as released on 2026-08-10" \
      org.opencontainers.image.title="gilded-gnosis-v20 for sm120" \
      org.opencontainers.image.version="gilded-gnosis-v20-sm120-KEY"

# The gate's tests over the candidate; never published.
FROM runtime AS smoke
COPY --from=smoke-tests / /graft/smoke/
ENTRYPOINT []

# infernal-invocation-sm120-KEY: rendered by Graft from recipe infernal-invocation for sm120.
# Every input comes from a named context; `make render` also says how to build this by hand.

# The base: nvcr.io/nvidia/pytorch:26.07-py3@sha256:2140e699b3beaf7f96a0081fd9c9406bc3832b435cdb60dfa2d261f7d2f34a1c.
FROM base-image AS base

# What the runtime and the builder share: the venv, over the CUDA toolkit that the base brings (/usr/local/cuda).
FROM base AS foundation
RUN --network=none \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=venv-of-image.sh,target=/run/graft/scripts/venv-of-image.sh \
    bash /run/graft/scripts/venv-of-image.sh over-system python3.12 /usr/local/cuda && touch --date=@1577836800 /etc /run /tmp

# Compilers and build requirements; nothing of this stage is published.
FROM foundation AS builder
RUN --network=none \
    --mount=type=bind,from=wheels-build,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp

# b12x: the commit, its heads merged onto it in this order; the tree must be the recipe's.
#   pull 145 at 7f88972df71d580951115220b75923078b769fe8
#   pull 221 at 413f96e889dad1ae0752fd1f4be9d37f56849600
#   pull 223 at 3df80ee36e2a060b602897b00af377687efd9118
#   pull 227 at e38436d76a95c586c57e06646f8ea5b8c8ed11c7
#   pull 228 at 50046df84a15cc5f76b94260e897fd39072b2fdf
#   pull 229 at 2cdd9e265cd6c4dca43e7d42c5a8cb265c92adfb
#   pull 230 at 156920046e858f413db0c51e53cd25b9020d5f40
FROM builder AS source-b12x
RUN --network=none \
    --mount=type=bind,from=git-b12x,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=c25cdba2c1df7a69b2d7771e4243e12a8fbf19d5 \
    HEADS="7f88972df71d580951115220b75923078b769fe8 \
      413f96e889dad1ae0752fd1f4be9d37f56849600 \
      3df80ee36e2a060b602897b00af377687efd9118 \
      e38436d76a95c586c57e06646f8ea5b8c8ed11c7 \
      50046df84a15cc5f76b94260e897fd39072b2fdf \
      2cdd9e265cd6c4dca43e7d42c5a8cb265c92adfb \
      156920046e858f413db0c51e53cd25b9020d5f40" \
    TREE=75787c7a7431b3bea414d2ebf5f2b8671b23eb33 \
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/b12x /out b12x 0+gc25cdba2c

# b12x: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-b12x AS stamped-b12x
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-b12x
COPY --from=stamped-b12x /out/ /

# flashinfer 0.6.18+cu133: the wheels in voipmonitor/vllm:flashinfer-wheels-fi1ac6942-cu133-torch213-20260820-r1@sha256:477a3b55b973df48b08a6dfae4a2a1e64c975a990dda22f65e31acd5217b86bb.
FROM scratch AS built-flashinfer
COPY --from=image-flashinfer /opt/flashinfer-wheels/ /

# nccl: the commit.
FROM builder AS source-nccl
RUN --network=none \
    --mount=type=bind,from=git-nccl,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=fb6f40999a2a9e63104d4ae4a84118bce61528f8 \
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
    /opt/venv/bin/python /run/graft/scripts/build-make.py /src/nccl /out --distribution nvidia-nccl-cu13 --version 2.31.2

# nccl: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-nccl AS stamped-nccl
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-nccl
COPY --from=stamped-nccl /out/ /

# torch: the commit.
FROM builder AS source-torch
RUN --network=none \
    --mount=type=bind,from=git-torch,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=cf30153c4c131c8164ee7798e5022d810682e2cb \
    bash /run/graft/scripts/checkout-git.sh /run/graft/git /src/torch

# Empty; where machines share what ccache keeps, Graft puts that in its place.
FROM scratch AS ccache-torch
# torch: the wheel of its own PEP 517 backend, for sm_120a alone; /out holds it.
# Secrets, because they may not be part of any key: neither the number of jobs nor a cache changes a byte.
FROM source-torch AS build-torch
ENV CMAKE_CUDA_ARCHITECTURES="120a" \
    CUDA_HOME="/usr/local/cuda" \
    CUTE_DSL_ARCH="sm_120a" \
    FLASHINFER_CUDA_ARCH_LIST="12.0a" \
    NVCC_GENCODE="-gencode=arch=compute_120a,code=sm_120a" \
    PYTORCH_BUILD_NUMBER="1" \
    PYTORCH_BUILD_VERSION="2.13.0" \
    SOURCE_DATE_EPOCH="1577836800" \
    TORCH_CUDA_ARCH_LIST="12.0a"
RUN --network=none \
    --mount=type=bind,from=built-nccl,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh
RUN --network=none \
    --mount=type=cache,id=graft-ccache,target=/ccache \
    --mount=type=bind,from=ccache-torch,target=/ccache-shared \
    --mount=type=secret,id=graft-ccache-torch \
    --mount=type=secret,id=graft-jobs-torch --mount=type=secret,id=graft-job-gb-python \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=build-python.py,target=/run/graft/scripts/build-python.py \
    --mount=type=bind,from=scripts,source=buildrun.py,target=/run/graft/scripts/buildrun.py \
    GRAFT_JOBS=$(test -f /run/secrets/graft-jobs-torch && cat /run/secrets/graft-jobs-torch) \
    GRAFT_JOB_GB=$(test -f /run/secrets/graft-job-gb-python && cat /run/secrets/graft-job-gb-python) \
    GRAFT_CCACHE_SHARED=$(test -f /run/secrets/graft-ccache-torch && cat /run/secrets/graft-ccache-torch) \
    CCACHE_DIR=/ccache \
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/torch /out torch 2.13.0

# torch: its wheels, with the key of the component inside. Graft puts what its store has in the place of this stage.
FROM build-torch AS stamped-torch
RUN --network=none \
    --mount=type=bind,from=scripts,source=stamp-wheels.py,target=/run/graft/scripts/stamp-wheels.py \
    /opt/venv/bin/python /run/graft/scripts/stamp-wheels.py /out KEY
FROM scratch AS built-torch
COPY --from=stamped-torch /out/ /

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
    --mount=type=bind,from=built-torch,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh
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

# vllm: the commit, its heads merged onto it in this order; the tree must be the recipe's.
#   pull 285 at d6b7377cbf27836241d04c9dd08725b7426d88eb
#   pull 286 at 9dbec23e2b2ad5f788838ee3dafc3f6623b500b5
#   pull 287 at a5e76352ba295bf1bbc80c9bce52b2b7e280c24e
#   pull 288 at 29f13ebc717d10d4aef5f728598c9ab0f75b082e
#   pull 290 at c13a214bd70319938136fa38757a9ea739569639
#   pull 292 at fb8d983acd642f059e5f3d3466e0f1c13e48b083
#   pull 294 at a18a86e1faf246e4d022071d72645e57c90b71cf
#   pull 295 at 634b1973b041df52e1861b48f77ab1772389b77c
#   pull 296 at 31472fd994f99802006a6297557d641b88652ceb
#   pull 298 at b8d92cb5d26e1c6fc4c5ad513b806dae961a4afd
#   pull 300 at 1b0c1c49f3517406db33f9b08aa7b476ce8d3e34
#   pull 301 at 2255f632485c0f8a4e6cc81bc052a818b52a38a8
#   pull 302 at 7d1c21353cf4563b5344c83cf53acecac1f2f99c
#   pull 303 at 4b297d1a07bfcc1bf0ab14c1dc25fe59c3e8f081
#   pull 304 at 229de6270e511701045fd73af592620901c7422b
#   pull 308 at 053e6351d0b3b3e35c969c9e3933db64d30a7164
#   pull 309 at dc0c026df62448d1bec747d9dd6fb0a01d838f3e
#   pull 320 at e9534672129b961399b1625d33d83c79eacded30
#   pull 415 at c805ebd0896ccfbd2569bc0b2a7944d3282106ff
#   pull 417 at 2511e5df2b1e4dfd2360a28e89899c90b7b3fcc7
#   pull 422 at 3c296be28b31dba5c4a0ced714d2e21dabe246af
#   pull 423 at ed907e57ec7a22c1ce88729a2f26bbb44c0dfbd5
#   pull 429 at 8850b616789351b8836b962041bca38575782cb5
#   pull 430 at 131ec3c6ee7e42bc2d17023c533fe104db7ef600
#   pull 431 at 03cccf4adab72a5764854a49f83c0e6c252b1842
#   pull 432 at 6532ff6a7c9ee963a245d9ebc68371a804be93f6
#   pull 433 at 9151d114e270250fb0367333b2dc5a49c6383796
#   pull 434 at 2822782cb76c7bcef952a661f4999992b6527c98
FROM builder AS source-vllm
RUN --network=none \
    --mount=type=bind,from=git-vllm,target=/run/graft/git \
    --mount=type=bind,from=scripts,source=checkout-git.sh,target=/run/graft/scripts/checkout-git.sh \
    COMMIT=6dc2f516688fe6f84c6994dcd20fddf296853a6c \
    HEADS="d6b7377cbf27836241d04c9dd08725b7426d88eb \
      9dbec23e2b2ad5f788838ee3dafc3f6623b500b5 \
      a5e76352ba295bf1bbc80c9bce52b2b7e280c24e \
      29f13ebc717d10d4aef5f728598c9ab0f75b082e \
      c13a214bd70319938136fa38757a9ea739569639 \
      fb8d983acd642f059e5f3d3466e0f1c13e48b083 \
      a18a86e1faf246e4d022071d72645e57c90b71cf \
      634b1973b041df52e1861b48f77ab1772389b77c \
      31472fd994f99802006a6297557d641b88652ceb \
      b8d92cb5d26e1c6fc4c5ad513b806dae961a4afd \
      1b0c1c49f3517406db33f9b08aa7b476ce8d3e34 \
      2255f632485c0f8a4e6cc81bc052a818b52a38a8 \
      7d1c21353cf4563b5344c83cf53acecac1f2f99c \
      4b297d1a07bfcc1bf0ab14c1dc25fe59c3e8f081 \
      229de6270e511701045fd73af592620901c7422b \
      053e6351d0b3b3e35c969c9e3933db64d30a7164 \
      dc0c026df62448d1bec747d9dd6fb0a01d838f3e \
      e9534672129b961399b1625d33d83c79eacded30 \
      c805ebd0896ccfbd2569bc0b2a7944d3282106ff \
      2511e5df2b1e4dfd2360a28e89899c90b7b3fcc7 \
      3c296be28b31dba5c4a0ced714d2e21dabe246af \
      ed907e57ec7a22c1ce88729a2f26bbb44c0dfbd5 \
      8850b616789351b8836b962041bca38575782cb5 \
      131ec3c6ee7e42bc2d17023c533fe104db7ef600 \
      03cccf4adab72a5764854a49f83c0e6c252b1842 \
      6532ff6a7c9ee963a245d9ebc68371a804be93f6 \
      9151d114e270250fb0367333b2dc5a49c6383796 \
      2822782cb76c7bcef952a661f4999992b6527c98" \
    TREE=f0fa1cefc1865d316c2478525f550e7646addc40 \
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
    --mount=type=bind,from=built-torch,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh
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
    /opt/venv/bin/python /run/graft/scripts/build-python.py /src/vllm /out vllm 0.26.1rc0+infernal.invocation.cu133.r18.vllmf0fa1ce.b12x75787c7

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
    --mount=type=bind,from=built-torch,target=/run/graft/wheels \
    --mount=type=bind,from=tools,target=/run/graft/tools \
    --mount=type=bind,from=scripts,source=install-wheels.sh,target=/run/graft/scripts/install-wheels.sh \
    bash /run/graft/scripts/install-wheels.sh && touch --date=@1577836800 /etc /run /tmp
RUN --network=none \
    --mount=type=bind,from=built-deepgemm,target=/run/graft/wheels \
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
      dev.graft.base="nvcr.io/nvidia/pytorch:26.07-py3@sha256:2140e699b3beaf7f96a0081fd9c9406bc3832b435cdb60dfa2d261f7d2f34a1c" \
      dev.graft.component.b12x.commit="c25cdba2c1df7a69b2d7771e4243e12a8fbf19d5" \
      dev.graft.component.b12x.pulls="145@7f88972df71d580951115220b75923078b769fe8 221@413f96e889dad1ae0752fd1f4be9d37f56849600 223@3df80ee36e2a060b602897b00af377687efd9118 227@e38436d76a95c586c57e06646f8ea5b8c8ed11c7 228@50046df84a15cc5f76b94260e897fd39072b2fdf 229@2cdd9e265cd6c4dca43e7d42c5a8cb265c92adfb 230@156920046e858f413db0c51e53cd25b9020d5f40" \
      dev.graft.component.b12x.tree="75787c7a7431b3bea414d2ebf5f2b8671b23eb33" \
      dev.graft.component.b12x.version="0+gc25cdba2c" \
      dev.graft.component.deepgemm.commit="a6b593d2826719dcf4892609af7b84ee23aaf32a" \
      dev.graft.component.deepgemm.version="0+ga6b593d28" \
      dev.graft.component.flashinfer.commit="1ac6942776b383c6b03c7a5805a22e72a3e3349f" \
      dev.graft.component.flashinfer.version="0.6.18+cu133" \
      dev.graft.component.nccl.commit="fb6f40999a2a9e63104d4ae4a84118bce61528f8" \
      dev.graft.component.nccl.version="2.31.2" \
      dev.graft.component.torch.commit="cf30153c4c131c8164ee7798e5022d810682e2cb" \
      dev.graft.component.torch.version="2.13.0" \
      dev.graft.component.vllm.commit="6dc2f516688fe6f84c6994dcd20fddf296853a6c" \
      dev.graft.component.vllm.pulls="285@d6b7377cbf27836241d04c9dd08725b7426d88eb 286@9dbec23e2b2ad5f788838ee3dafc3f6623b500b5 287@a5e76352ba295bf1bbc80c9bce52b2b7e280c24e 288@29f13ebc717d10d4aef5f728598c9ab0f75b082e 290@c13a214bd70319938136fa38757a9ea739569639 292@fb8d983acd642f059e5f3d3466e0f1c13e48b083 294@a18a86e1faf246e4d022071d72645e57c90b71cf 295@634b1973b041df52e1861b48f77ab1772389b77c 296@31472fd994f99802006a6297557d641b88652ceb 298@b8d92cb5d26e1c6fc4c5ad513b806dae961a4afd 300@1b0c1c49f3517406db33f9b08aa7b476ce8d3e34 301@2255f632485c0f8a4e6cc81bc052a818b52a38a8 302@7d1c21353cf4563b5344c83cf53acecac1f2f99c 303@4b297d1a07bfcc1bf0ab14c1dc25fe59c3e8f081 304@229de6270e511701045fd73af592620901c7422b 308@053e6351d0b3b3e35c969c9e3933db64d30a7164 309@dc0c026df62448d1bec747d9dd6fb0a01d838f3e 320@e9534672129b961399b1625d33d83c79eacded30 415@c805ebd0896ccfbd2569bc0b2a7944d3282106ff 417@2511e5df2b1e4dfd2360a28e89899c90b7b3fcc7 422@3c296be28b31dba5c4a0ced714d2e21dabe246af 423@ed907e57ec7a22c1ce88729a2f26bbb44c0dfbd5 429@8850b616789351b8836b962041bca38575782cb5 430@131ec3c6ee7e42bc2d17023c533fe104db7ef600 431@03cccf4adab72a5764854a49f83c0e6c252b1842 432@6532ff6a7c9ee963a245d9ebc68371a804be93f6 433@9151d114e270250fb0367333b2dc5a49c6383796 434@2822782cb76c7bcef952a661f4999992b6527c98" \
      dev.graft.component.vllm.tree="f0fa1cefc1865d316c2478525f550e7646addc40" \
      dev.graft.component.vllm.version="0.26.1rc0+infernal.invocation.cu133.r18.vllmf0fa1ce.b12x75787c7" \
      dev.graft.cuda="13.3" \
      dev.graft.key="KEY" \
      dev.graft.recipe="infernal-invocation" \
      dev.graft.unlocked="build requirements, dependencies, uv" \
      org.opencontainers.image.description="Infernal Invocation r18, DeepSeek-V4-Flash and GLM-5.2 on RTX PRO 6000, as released on 2026-08-18" \
      org.opencontainers.image.title="infernal-invocation for sm120" \
      org.opencontainers.image.version="infernal-invocation-sm120-KEY"

# The gate's tests over the candidate; never published.
FROM runtime AS smoke
COPY --from=smoke-tests / /graft/smoke/
ENTRYPOINT []

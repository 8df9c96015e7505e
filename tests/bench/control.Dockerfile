# The bench's control: what one writes without Graft. Same base, same packages, same patches, same compiled modules.
FROM scratch
ADD rootfs.tar /
RUN --network=none --mount=type=bind,from=builder-debs,target=/debs \
    --mount=type=bind,from=scripts,source=install-debs.sh,target=/install-debs.sh \
    bash /install-debs.sh /debs
COPY patches /patches
COPY requirements.txt sdist.txt /
# pip itself comes from the host's venv: Debian's python3.11 has neither pip nor ensurepip.
RUN --network=host --mount=type=secret,id=ca --mount=type=secret,id=settings --mount=type=bind,from=pip,target=/pip \
    . /run/secrets/settings; export PIP_CERT=/run/secrets/ca; pip="/opt/venv/bin/python /pip" && \
    python3.11 -m venv --without-pip /opt/venv && \
    $pip install --no-cache-dir --no-deps --require-hashes -r requirements.txt && \
    $pip download --no-cache-dir --no-deps --no-binary :all: --no-build-isolation --require-hashes -r sdist.txt -d /sdist && \
    mkdir /src && tar xzf /sdist/*.tar.gz -C /src --strip-components 1
RUN --network=none cd /src && for p in /patches/flashinfer/*.patch; do git apply "$p"; done && \
    cd /opt/venv/lib/python3.11/site-packages && for p in /patches/vllm/*.patch; do git apply "$p"; done
ARG MODULES
RUN --network=none --mount=type=bind,from=pip,target=/pip \
    --mount=type=bind,from=scripts,target=/graft/scripts --mount=type=bind,from=fatbin,target=/graft/smoke/lib \
    export CUDA_HOME=/opt/venv/lib/python3.11/site-packages/nvidia/cu13 FLASHINFER_CUDA_ARCH_LIST=9.0a && \
    bash /graft/scripts/cuda-links.sh "$CUDA_HOME" && \
    /opt/venv/bin/python /graft/scripts/build-flashinfer-aot.py wheel /src /out --version 0.7.0.post1 && \
    /opt/venv/bin/python /graft/scripts/build-flashinfer-aot.py modules /src /out --version 0.7.0.post1 $MODULES && \
    /opt/venv/bin/python /pip install --no-deps --no-index --find-links /out flashinfer-python graft-flashinfer-aot
ENTRYPOINT ["/opt/venv/bin/vllm", "serve"]

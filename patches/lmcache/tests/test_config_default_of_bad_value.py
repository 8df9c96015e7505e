"""A setting of LMCache that cannot be converted keeps its default, wherever it was set."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.config_base import load_config_with_overrides, validate_and_set_config_value

CHUNK_SIZE, CPU_SIZE = 256, 5.0


@contextmanager
def environment(**settings: str) -> Iterator[None]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LMCACHE_")}
    with patch.dict(os.environ, {**kept, **settings}, clear=True):
        yield


def from_file(text: str) -> LMCacheEngineConfig:
    with environment(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lmcache.yaml"
        path.write_text(text)
        return LMCacheEngineConfig.from_file(str(path))


def test_of_the_environment() -> None:
    with environment(LMCACHE_CHUNK_SIZE="256k", LMCACHE_MAX_LOCAL_CPU_SIZE="5 GB"):
        config = LMCacheEngineConfig.from_env()
    assert (config.chunk_size, config.max_local_cpu_size) == (CHUNK_SIZE, CPU_SIZE)


def test_of_a_file() -> None:
    config = from_file("chunk_size: 256k\nmax_local_cpu_size: 5 GB\n")
    assert (config.chunk_size, config.max_local_cpu_size) == (CHUNK_SIZE, CPU_SIZE)


def test_of_defaults() -> None:
    assert LMCacheEngineConfig.from_defaults(chunk_size="256k").chunk_size == CHUNK_SIZE


def test_an_override_leaves_what_was_there() -> None:
    with environment(LMCACHE_CHUNK_SIZE="64"):
        config = load_config_with_overrides(LMCacheEngineConfig, overrides={"chunk_size": "256k"})
    assert config.chunk_size == 64


def test_good_values_and_none_are_taken_as_before() -> None:
    with environment(LMCACHE_CHUNK_SIZE="64", LMCACHE_LOCAL_DISK=""):
        config = LMCacheEngineConfig.from_env()
    assert config.chunk_size == 64
    assert config.local_disk is None
    assert from_file("remote_serde: null\n").remote_serde is None


def test_a_value_that_is_set_later_is_still_refused() -> None:
    config = LMCacheEngineConfig.from_defaults()
    assert not validate_and_set_config_value(config, "chunk_size", "256k")
    assert config.chunk_size == CHUNK_SIZE

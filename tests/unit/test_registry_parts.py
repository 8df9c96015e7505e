"""Layers are compressed to the same bytes everywhere; the record of moves says where a channel can go back to."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
from pathlib import Path
from typing import Literal

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from graft.errors import BadInput
from graft.publish.history import Move, before, standing
from graft.publish.keys import load_private, load_public, new_pair
from graft.registry.compress import MEMBER, Compression, pack
from graft.registry.manifest import CONFIG, Descriptor, artifact, image_manifest

KINDS: tuple[Compression, ...] = ("gzip", "zstd")
SIZES = (0, 1, MEMBER - 1, MEMBER, MEMBER + 1, 2 * MEMBER + 7)


def stream(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]


def unpacked(data: bytes, kind: Compression) -> bytes:
    if kind == "gzip":
        return gzip.decompress(data)
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_packed_comes_out_again(tmp_path: Path, kind: Compression, size: int) -> None:
    data = random.Random(1).randbytes(size // 2) + b"x" * (size - size // 2)
    packed = pack(stream(data), tmp_path / "layer", kind, 2)
    written = (tmp_path / "layer").read_bytes()
    assert unpacked(written, kind) == data
    assert packed.diff_id == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert (packed.layer.digest, packed.layer.size) == (f"sha256:{hashlib.sha256(written).hexdigest()}", len(written))


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_threads_does_not_show(tmp_path: Path, kind: Compression) -> None:
    data = random.Random(2).randbytes(3_000_000) + b"y" * 9_000_000
    made = {pack(stream(data), tmp_path / str(threads), kind, threads).layer.digest for threads in (1, 2, 5)}
    assert len(made) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", KINDS)
def test_a_layer_that_the_engine_keeps_compressed_is_the_same_layer(
    tmp_path: Path, kind: Compression, kept: Compression
) -> None:
    data = b"a tar" * 1000
    sealed = gzip.compress(data) if kept == "gzip" else zstandard.compress(data)
    assert pack(stream(sealed), tmp_path / "a", kind, 1) == pack(stream(data), tmp_path / "b", kind, 1)


def test_a_manifest_has_one_form() -> None:
    config, layer = Descriptor(CONFIG, "sha256:" + "1" * 64, 2), Descriptor("layer", "sha256:" + "2" * 64, 3)
    made = image_manifest(config, [layer])
    assert made.digest == "sha256:" + hashlib.sha256(made.data).hexdigest()
    assert json.loads(made.data)["mediaType"] == made.media_type
    assert image_manifest(config, [layer, layer]).digest != made.digest
    assert json.loads(artifact("kind", [layer], subject=made.descriptor).data)["subject"]["digest"] == made.digest


def move(action: Literal["push", "promote", "rollback"], digit: str) -> Move:
    digest = "sha256:" + digit * 64
    return Move(channel="c", action=action, digest=digest, previous=None, image_id=digest, tag=digit, by="me", at="now")


def names(moves: list[Move]) -> str:
    return "".join(entry.tag for entry in moves)


@pytest.mark.parametrize(
    ("story", "stands", "back"),
    [
        ("", "", ""),
        ("+a", "a", ""),
        ("+a +b +c", "abc", "ba"),
        ("+a +b +c -b", "ab", "a"),
        ("+a +b +c -b -a", "a", ""),
        ("+a +b -a +c", "ac", "a"),
        ("+a +b +a", "aba", "b"),
        ("+a +a", "a", ""),
        ("+a -x", "ax", "a"),
    ],
)
def test_where_a_channel_can_go_back_to(story: str, stands: str, back: str) -> None:
    digits = {"x": "d"}
    moves = [move("rollback" if s[0] == "-" else "promote", digits.get(s[1], s[1])) for s in story.split()]
    found = standing(moves)
    assert names(found).replace("d", "x") == stands
    assert names(before(moves, found[-1].digest if found else None)).replace("d", "x") == back


def test_a_move_that_was_cut_off_is_not_where_it_stands() -> None:
    moves = [move("promote", "a"), move("promote", "b"), move("promote", "c")]
    assert names(before(moves, "sha256:" + "b" * 64)) == "a"
    assert names(before(moves, None)) == "cba"


@given(st.lists(st.sampled_from("abc"), max_size=8))
def test_going_back_never_stays(story: list[str]) -> None:
    moves = [move("promote", digit) for digit in story]
    now = moves[-1].digest if moves else None
    assert all(entry.digest != now for entry in before(moves, now))


class TestKeys:
    """Pairs of keys as files."""

    def test_a_pair_signs_and_checks(self, tmp_path: Path) -> None:
        made = new_pair(tmp_path / "k.pem", tmp_path / "k.pub", "secret")
        private, public = load_private(tmp_path / "k.pem", "secret"), load_public(tmp_path / "k.pub")
        assert made.fingerprint == public.fingerprint == private.public.fingerprint
        assert public.accepts(b"data", private.sign(b"data"))
        assert not public.accepts(b"Data", private.sign(b"data"))
        assert (tmp_path / "k.pem").stat().st_mode & 0o777 == 0o600

    def test_nothing_is_written_over(self, tmp_path: Path) -> None:
        (tmp_path / "k.pub").write_text("mine")
        with pytest.raises(BadInput, match="there already"):
            new_pair(tmp_path / "k.pem", tmp_path / "k.pub", None)
        assert not (tmp_path / "k.pem").exists()

    @pytest.mark.parametrize(("password", "says"), [(None, "has a password"), ("wrong", "the password is wrong")])
    def test_the_password(self, tmp_path: Path, password: str | None, says: str) -> None:
        new_pair(tmp_path / "k.pem", tmp_path / "k.pub", "secret")
        with pytest.raises(BadInput, match=says):
            load_private(tmp_path / "k.pem", password)

    def test_a_password_too_many(self, tmp_path: Path) -> None:
        new_pair(tmp_path / "k.pem", tmp_path / "k.pub", None)
        with pytest.raises(BadInput, match="has no password"):
            load_private(tmp_path / "k.pem", "secret")

    def test_what_is_no_key(self, tmp_path: Path) -> None:
        (tmp_path / "k").write_text("hello")
        for load in (load_public, lambda path: load_private(path, None)):
            with pytest.raises(BadInput):
                load(tmp_path / "k")
            with pytest.raises(BadInput, match="cannot be read"):
                load(tmp_path / "gone")

    def test_a_key_in_cosigns_own_form(self, tmp_path: Path) -> None:
        (tmp_path / "k").write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")
        with pytest.raises(BadInput, match="sealed in cosign"):
            load_private(tmp_path / "k", None)

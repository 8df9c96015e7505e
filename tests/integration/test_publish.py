"""Publishing to a real registry: what is written, in which order, what is refused, and what a puller checks."""

from __future__ import annotations

import base64
import dataclasses
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from distribution import Distribution, distribution, program
from publishing import BY, CHANNEL, HISTORY, STABLE, Release, Shop

from graft.cli import main
from graft.errors import BadInput, GateFailed, RegistryFailed
from graft.publish.evidence import TYPES, attached
from graft.publish.history import read_history
from graft.publish.keys import new_pair
from graft.publish.signing import signature_tag
from graft.publish.verify import verify
from graft.registry.manifest import IMAGE, LAYER_ZSTD, image_manifest, index
from graft.registry.reference import Reference
from graft.registry.referrers import Attachment, artifacts_of, attach, fallback_tag, referrers


@dataclass(frozen=True)
class Told:
    """What a verb said."""

    stdout: str
    stderr: str


Graft = Callable[..., Told]


@pytest.fixture
def graft(shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Graft:
    """A verb as a user types it; in this process, because starting one takes longer than most of what is tested."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))

    def run(*words: str, code: int = 0, common: bool = True) -> Told:
        capsys.readouterr()
        own = ["--project", str(shop.root), "--recipe", "glm-dsa", "--arch", "sm90"]
        own += ["--registry", f"{shop.host}/graft"] if common else []
        with pytest.raises(SystemExit) as ended:
            main([*words, *own])
        told = Told(*capsys.readouterr())
        assert ended.value.code == code, told
        return told

    return run


def checked(shop: Shop, tag: str, *, unsigned: bool = False) -> str:
    """The digest behind a tag, after all checks."""
    key = None if unsigned else shop.public
    return verify(shop.registry, Reference(shop.repository, tag=tag), key, unsigned=unsigned).digest


def test_what_a_push_leaves(shop: Shop, running: Distribution) -> None:
    release = shop.release(1)
    done = shop.push(release)
    tags = running.tags("graft")
    assert tags[release.tag] == tags[CHANNEL] == done.digest
    assert set(tags) == {
        release.tag,
        CHANNEL,
        HISTORY,
        fallback_tag(done.digest),
        signature_tag(done.digest),
    }
    manifest = shop.registry.manifest(release.tag)
    assert manifest is not None
    assert manifest.media_type == IMAGE
    assert [layer.media_type for layer in manifest.layers("")] == [LAYER_ZSTD, LAYER_ZSTD]
    assert manifest.config("").digest == release.image.id == done.image_id
    kinds = {entry.artifact_type for entry in referrers(shop.registry, done.digest)}
    assert kinds == set(TYPES.values())
    assert checked(shop, CHANNEL) == done.digest


def test_the_same_image_has_the_same_digest_whoever_pushes_it(shop: Shop, tmp_path: Path) -> None:
    first = shop.push(shop.release(1))
    with distribution(tmp_path / "another") as other:
        again = dataclasses.replace(shop, host=other.host).push(shop.release(1), memory=tmp_path / "fresh")
    assert again.digest == first.digest


def test_a_second_push_sends_and_moves_nothing(shop: Shop, running: Distribution) -> None:
    shop.push(shop.release(1))
    before = running.tags("graft")
    again = shop.push(shop.release(1))
    assert (again.new_bytes, again.moved) == (0, ())
    assert running.tags("graft") == before


def test_a_changed_layer_alone_is_sent(shop: Shop) -> None:
    first = shop.push(shop.release(1, padding=50_000))
    second = shop.push(shop.release(2))
    assert first.new_bytes > 50_000
    assert 0 < second.new_bytes < 1000


def test_an_immutable_tag_is_never_moved(shop: Shop, running: Distribution) -> None:
    shop.push(shop.release(1))
    before = running.tags("graft")
    with pytest.raises(RegistryFailed, match="exists with another image"):
        shop.push(shop.release(1, content=b"other bytes under the same key"))
    assert running.tags("graft") == before


@pytest.mark.parametrize("change", ["red", "of-another-image", "nothing-ran"])
def test_what_has_no_passing_receipt_is_not_published(shop: Shop, running: Distribution, change: str) -> None:
    release = shop.release(1)
    receipt = release.receipt
    if change == "red":
        receipt = receipt.model_copy(update={"verdict": "fail"})
    elif change == "nothing-ran":
        receipt = receipt.model_copy(update={"tests": ()})
    else:
        receipt = receipt.model_copy(update={"image_id": "sha256:" + "9" * 64})
    with pytest.raises(GateFailed):
        shop.push(dataclasses.replace(release, receipt=receipt))
    assert running.tags("graft") == {}


def test_an_export_cut_short_leaves_no_tag(shop: Shop, running: Distribution, tmp_path: Path) -> None:
    release = shop.release(1, padding=300_000)
    cut = dataclasses.replace(release, image=dataclasses.replace(release.image, cut=200_000))
    with pytest.raises(RegistryFailed, match="cut short"):
        shop.push(cut, memory=tmp_path / "fresh")
    assert running.tags("graft") == {}
    shop.push(release)
    assert checked(shop, CHANNEL)


def test_the_bill_of_material_has_each_patch_in_the_pedigree(shop: Shop) -> None:
    done = shop.push(shop.release(1))
    bill = json.loads(attached(shop.registry, done.digest, "sbom"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    by_name = {entry["name"]: entry for entry in bill["components"]}
    assert by_name["vllm"]["purl"].startswith("pkg:pypi/vllm@0.32.0")
    patches = by_name["vllm"]["pedigree"]["patches"]
    assert [patch["resolves"][0]["id"] for patch in patches] == ["vllm/glm-dsa-dcp-defaults", "vllm/mtp-indexer-scales"]
    file = shop.root / "patches" / "vllm" / "mtp-indexer-scales.patch"
    assert base64.b64decode(patches[1]["diff"]["text"]["content"]) == file.read_bytes()
    assert by_name["vllm"]["pedigree"]["commits"] == [{"uid": "5df63a720"}]
    assert by_name["flashinfer-python"]["pedigree"]["patches"]
    assert "pedigree" not in by_name["torch"]
    assert any(entry["purl"].startswith("pkg:deb/debian/python3.11@") for entry in bill["components"])
    locked = {pin.name: pin.sha256 for pin in shop.planned.lock.image_packages("sm90")}
    assert by_name["torch"]["hashes"] == [{"alg": "SHA-256", "content": locked["torch"]}]


def test_the_provenance_names_image_lock_and_every_input(shop: Shop) -> None:
    done = shop.push(shop.release(1))
    statement = json.loads(attached(shop.registry, done.digest, "provenance"))
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [{"name": str(shop.repository), "digest": {"sha256": done.digest[7:]}}]
    inputs = {entry["digest"]["sha256"] for entry in statement["predicate"]["buildDefinition"]["resolvedDependencies"]}
    lock = shop.planned.lock
    assert lock.digest in inputs
    assert {pin.sha256 for pin in lock.image_packages("sm90")} <= inputs
    assert {pin.sha256 for entry in shop.planned.patched().values() for pin in entry.patches} <= inputs


def test_cosign_verifies_what_graft_signs(shop: Shop, tmp_path: Path) -> None:
    done = shop.push(shop.release(1))
    other = tmp_path / "other.pub"
    new_pair(tmp_path / "other.pem", other, "a password")
    for key, code in ((shop.root / "keys" / "release.pub", 0), (other, 12)):
        words = ["verify", "--key", str(key), "--insecure-ignore-tlog", "--allow-http-registry"]
        words += ["-a", f"creator={BY}", f"{shop.repository}@{done.digest}"]
        told = subprocess.run(
            [program("cosign"), *words], capture_output=True, text=True, check=False, env={"HOME": str(tmp_path)}
        )
        assert told.returncode == code, told.stderr
    assert "no matching signatures" in told.stderr


class TestVerify:
    """Each tampering has its reason."""

    def test_it_says_who_when_and_which_tests(self, shop: Shop, graft: Graft) -> None:
        done = shop.push(shop.release(1))
        told = json.loads(graft("verify", CHANNEL, "--json").stdout)
        assert (told["by"], told["signed"], told["gate"]) == (BY, True, {"core": "pass"})
        assert told["digest"] == done.digest
        people = graft("verify", f"{shop.host}/graft@{done.digest}")
        assert people.stdout == f"{shop.host}/graft@{done.digest}\n"
        assert BY in people.stderr
        assert "core: pass" in people.stderr

    def test_no_such_tag(self, shop: Shop, graft: Graft) -> None:
        assert "there is no such tag" in graft("verify", "never", code=8).stderr
        assert "there is no such digest" in graft("verify", "sha256:" + "0" * 64, code=8).stderr

    def test_an_unsigned_image(self, shop: Shop, graft: Graft) -> None:
        shop.push(shop.release(1), signed=False)
        assert "is not signed" in graft("verify", CHANNEL, code=8).stderr
        assert checked(shop, CHANNEL, unsigned=True)

    def test_without_a_key_nothing_is_verified(self, shop: Shop) -> None:
        shop.push(shop.release(1))
        with pytest.raises(BadInput, match="no key"):
            verify(shop.registry, Reference(shop.repository, tag=CHANNEL), None)

    def test_another_key(self, shop: Shop, graft: Graft, tmp_path: Path) -> None:
        shop.push(shop.release(1))
        pair = ("--private", str(tmp_path / "a.pem"), "--public", str(tmp_path / "a.pub"))
        graft("key", "new", *pair, common=False)
        assert "is there already" in graft("key", "new", *pair, common=False, code=2).stderr
        assert "was not made by the key" in graft("verify", CHANNEL, "--key", str(tmp_path / "a.pub"), code=8).stderr

    def test_a_signature_of_another_image(self, shop: Shop) -> None:
        one, two = shop.push(shop.release(1)), shop.push(shop.release(2))
        stolen = shop.registry.manifest(signature_tag(one.digest))
        assert stolen is not None
        shop.registry.put_manifest(stolen, signature_tag(two.digest))
        with pytest.raises(RegistryFailed, match="a signature is of another image"):
            checked(shop, shop.release(2).tag)

    def test_a_tampered_file_on_the_registrys_disk(self, shop: Shop, running: Distribution) -> None:
        done = shop.push(shop.release(1))
        for media_type in TYPES.values():
            (artifact,) = artifacts_of(shop.registry, done.digest, media_type)
            file = running.blob_file(artifact.layers("")[0].digest)
            data = file.read_bytes()
            file.write_bytes(data.replace(b"a", b"b", 1))
            with pytest.raises(RegistryFailed, match="damaged or tampered with"):
                checked(shop, CHANNEL)
            file.write_bytes(data)
        assert checked(shop, CHANNEL)

    def test_another_document_is_not_the_signed_one(self, shop: Shop) -> None:
        done = shop.push(shop.release(1))
        manifest, before = shop.registry.manifest(done.digest), shop.registry.manifest(fallback_tag(done.digest))
        assert manifest is not None
        assert before is not None
        kept = {entry.artifact_type: entry for entry in referrers(shop.registry, done.digest)}
        for kind, media_type in TYPES.items():
            others = [entry for name, entry in kept.items() if name != media_type]
            shop.registry.put_manifest(index(others), fallback_tag(done.digest))
            with pytest.raises(RegistryFailed, match=f"has no {kind} attached"):
                checked(shop, CHANNEL)
            attach(shop.registry, manifest.descriptor, [Attachment(media_type, b"{}", {})])
            with pytest.raises(RegistryFailed, match=f"the attached {kind} is not the one that was signed"):
                checked(shop, CHANNEL)
        shop.registry.put_manifest(before, fallback_tag(done.digest))
        assert checked(shop, CHANNEL)

    def test_a_receipt_that_does_not_fit_the_image(self, shop: Shop) -> None:
        """Without a signature too, what is published is held against itself."""
        release = shop.release(1)
        done = shop.push(release, signed=False)
        manifest = shop.registry.manifest(done.digest)
        assert manifest is not None
        sound = release.receipt.model_copy(update={"manifest_digest": done.digest})
        for change, value in {
            "image_id": "sha256:" + "d" * 64,
            "manifest_digest": "sha256:" + "d" * 64,
            "recipe": "other",
            "arch": "sm100",
            "key": "f" * 64,
            "lock_digest": "e" * 64,
            "verdict": "fail",
            "tests": (),
            "tier": "gpu",
        }.items():
            data = sound.model_copy(update={change: value}).model_dump_json().encode()
            attach(shop.registry, manifest.descriptor, [Attachment(TYPES["receipt"], data, {})])
            with pytest.raises(RegistryFailed, match=r"receipt is|this is no receipt"):
                checked(shop, CHANNEL, unsigned=True)
        attach(shop.registry, manifest.descriptor, [Attachment(TYPES["receipt"], sound.model_dump_json().encode(), {})])
        assert checked(shop, CHANNEL, unsigned=True)

    def test_an_image_for_another_platform(self, shop: Shop) -> None:
        release = shop.release(1)
        shop.push(dataclasses.replace(release, **_on_arm(release)))
        with pytest.raises(RegistryFailed, match="linux/arm64, not for linux/amd64"):
            checked(shop, CHANNEL)

    def test_a_list_of_platforms(self, shop: Shop) -> None:
        done = shop.push(shop.release(1))
        manifest = shop.registry.manifest(done.digest)
        assert manifest is not None
        shop.registry.put_manifest(index([manifest.descriptor]), "several")
        with pytest.raises(RegistryFailed, match="several platforms"):
            checked(shop, "several")

    def test_an_image_that_graft_did_not_publish(self, shop: Shop) -> None:
        done = shop.push(shop.release(1))
        manifest = shop.registry.manifest(done.digest)
        assert manifest is not None
        foreign = image_manifest(manifest.config(""), manifest.layers("")[:1])
        shop.registry.put_manifest(foreign, "foreign")
        with pytest.raises(RegistryFailed, match="is not signed"):
            checked(shop, "foreign")
        with pytest.raises(RegistryFailed, match="has no receipt attached"):
            checked(shop, "foreign", unsigned=True)


class TestChannels:
    """Channels are moved, never rebuilt."""

    def test_promote_and_roll_back(self, shop: Shop, graft: Graft, running: Distribution) -> None:
        digests = []
        for number in (1, 2, 3):
            digests.append(shop.push(shop.release(number)).digest)
            graft("promote")
        one, two, three = digests
        assert running.tags("graft")[STABLE] == three
        graft("rollback")
        assert running.tags("graft")[STABLE] == two
        graft("rollback")
        assert running.tags("graft")[STABLE] == one
        assert "nothing to go back to" in graft("rollback", code=8).stderr
        # What was rolled back can be promoted again, and undone again.
        graft("promote", shop.release(3).tag)
        assert running.tags("graft")[STABLE] == three
        graft("rollback")
        assert running.tags("graft")[STABLE] == one
        assert running.tags("graft")[CHANNEL] == three
        told = json.loads(graft("history", "--json").stdout)
        assert told["channels"] == {STABLE: one, CHANNEL: three}
        actions = [(move["channel"], move["action"]) for move in told["moves"] if move["channel"] == STABLE]
        assert [action for _, action in actions] == [*["promote"] * 3, *["rollback"] * 2, "promote", "rollback"]

    def test_rollback_passes_over_what_fails(self, shop: Shop, graft: Graft, running: Distribution) -> None:
        digests = []
        for number in (1, 2, 3):
            digests.append(shop.push(shop.release(number)).digest)
            graft("promote")
        running.repository_files("graft").joinpath("_manifests", "tags", signature_tag(digests[1])).rename(
            running.root / "away"
        )
        told = graft("rollback")
        assert "passing over" in told.stderr
        assert running.tags("graft")[STABLE] == digests[0]

    def test_what_does_not_verify_is_not_promoted(self, shop: Shop, graft: Graft, running: Distribution) -> None:
        shop.push(shop.release(1), signed=False)
        graft("promote", code=8)
        assert STABLE not in running.tags("graft")
        graft("promote", "--unsigned")
        assert STABLE in running.tags("graft")

    def test_a_second_promote_moves_and_records_nothing(self, shop: Shop, graft: Graft) -> None:
        shop.push(shop.release(1))
        graft("promote")
        before = read_history(shop.registry, HISTORY)
        assert json.loads(graft("promote", "--json").stdout)["moved"] is False
        assert read_history(shop.registry, HISTORY) == before

    def test_an_image_of_another_recipe(self, shop: Shop, graft: Graft) -> None:
        release = shop.release(1)
        labels = {**release.image.labels, "dev.graft.arch": "sm100"}
        other = dataclasses.replace(
            release,
            image=dataclasses.replace(release.image, labels=labels),
        )
        receipt = other.receipt.model_copy(update={"arch": "sm100", "image_id": other.image.id})
        shop.push(dataclasses.replace(other, receipt=receipt))
        assert "goes into no channel" in graft("promote", other.tag, code=8).stderr

    def test_a_move_that_was_written_down_and_cut_off(self, shop: Shop, graft: Graft, running: Distribution) -> None:
        one, two = shop.push(shop.release(1)).digest, shop.push(shop.release(2)).digest
        graft("promote", shop.release(1).tag)
        graft("promote", shop.release(2).tag)
        (running.repository_files("graft") / "_manifests" / "tags" / STABLE / "current" / "link").write_text(one)
        assert "was cut off" in graft("history").stderr
        # It never stood there, so there is nothing before it to go back to.
        graft("rollback", code=8)
        graft("promote", shop.release(2).tag)
        assert running.tags("graft")[STABLE] == two


def _on_arm(release: Release) -> dict[str, object]:
    image = dataclasses.replace(release.image, architecture="arm64")
    return {"image": image, "receipt": release.receipt.model_copy(update={"image_id": image.id})}

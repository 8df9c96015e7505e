"""patches/<component>/series.yaml: strict records, and a folder that agrees with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from patchwork import diff

from graft.errors import BadInput
from graft.patchset import When, load_patchset

RECORD = """\
  - id: {id}
    title: A fix
    target: source
    reason: It is broken.
    origin: https://example.org/issue/1
    upstream: pending
    until: "2.0"
    author: Somebody
    license: Apache-2.0
    tests: [tests/test_{test}.py]
"""


def series(*ids: str, **more: str) -> str:
    made = [RECORD.format(id=i, test=i.replace("-", "_")) + more.get(i.replace("-", "_"), "") for i in ids]
    return "component: demo\npatches:\n" + "".join(made)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "demo"
    (made / "tests").mkdir(parents=True)
    for name in ("one", "two-b"):
        (made / f"{name}.patch").write_bytes(diff(b"a\n", b"b\n"))
        (made / "tests" / f"test_{name.replace('-', '_')}.py").write_text("")
    (made / "series.yaml").write_text(series("one", "two-b"))
    return made


def refused(folder: Path, text: str | None = None) -> str:
    if text is not None:
        (folder / "series.yaml").write_text(text)
    with pytest.raises(BadInput) as caught:
        load_patchset(folder)
    return f"{caught.value.where}: {caught.value.what}"


def test_a_good_series(folder: Path) -> None:
    found = load_patchset(folder)
    assert [p.id for p in found.patches] == ["one", "two-b"]
    assert found.patches[0].data == diff(b"a\n", b"b\n")
    assert [p.id for p in found.select(["two-b", "one"])] == ["one", "two-b"]


def test_a_patch_that_is_not_in_the_series(folder: Path) -> None:
    (folder / "three.patch").write_text("x")
    assert "three.patch" in refused(folder)
    assert "series.yaml:2" in refused(folder)


def test_a_patch_that_does_not_exist(folder: Path) -> None:
    (folder / "two-b.patch").unlink()
    assert refused(folder).startswith(f"{folder}/series.yaml:13: two-b.patch is in the series but not in")


def test_a_patch_that_is_a_link(folder: Path) -> None:
    (folder / "two-b.patch").unlink()
    (folder / "two-b.patch").symlink_to(folder / "one.patch")
    assert "two-b.patch is in the series but not" in refused(folder)


def test_a_patch_listed_twice(folder: Path) -> None:
    assert ":23: patch 'one' is listed twice" in refused(folder, series("one", "two-b", "one"))


def test_a_missing_test(folder: Path) -> None:
    (folder / "tests" / "test_one.py").unlink()
    assert "test tests/test_one.py of one does not exist" in refused(folder)


def test_a_test_without_a_patch(folder: Path) -> None:
    (folder / "tests" / "test_other.py").write_text("")
    assert "tests/test_other.py belongs to no patch" in refused(folder)


def test_all_findings_at_once(folder: Path) -> None:
    (folder / "two-b.patch").unlink()
    (folder / "three.patch").write_text("x")
    said = refused(folder)
    assert "three.patch" in said
    assert "two-b.patch" in said


def test_after(folder: Path) -> None:
    assert "comes after 'nix', which is not in the series" in refused(
        folder, series("one", "two-b", two_b="    after: [nix]\n")
    )
    assert "comes after 'two-b', which stands later" in refused(
        folder, series("one", "two-b", one="    after: [two-b]\n")
    )
    (folder / "series.yaml").write_text(series("one", "two-b", two_b="    after: [one]\n"))
    found = load_patchset(folder)
    with pytest.raises(BadInput, match="comes after one, which is not selected"):
        found.select(["two-b"])
    with pytest.raises(BadInput, match="there is no patch demo/three"):
        found.select(["three"])


@pytest.mark.parametrize(
    "name", ["One", "0001-one", "one_two", "-one", "one--two", "one/two", "../one", "one.patch", ""]
)
def test_ids(folder: Path, name: str) -> None:
    assert "not a patch id" in refused(folder, series("one", "two-b").replace("id: one", f'id: "{name}"'))


@pytest.mark.parametrize(
    "key", ["reason", "origin", "until", "tests", "author", "license", "target", "upstream", "title"]
)
def test_required_keys(folder: Path, key: str) -> None:
    lines = [line for line in series("one").splitlines() if not line.strip().startswith(f"{key}:")]
    assert f"missing key 'patches.0.{key}'" in refused(folder, "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("upstream: pending", "upstream: merged", "upstream"),
        ("target: source", "target: image", "target"),
        ("origin: https://example.org/issue/1", "origin: see chat", "origin"),
        ('until: "2.0"', "until: 2.0", "quote it"),
        ("license: Apache-2.0", "license: Apache-2.0\n    licence: x", "unknown key 'patches.0.licence'"),
        ("tests: [tests/test_one.py]", "tests: []", "tests"),
        ("tests: [tests/test_one.py]", "tests: [../test_one.py]", "tests"),
        ("license: Apache-2.0", "license: Apache-2.0\n    when: {version: newest}", "not a version range"),
        ("license: Apache-2.0", "license: Apache-2.0\n    allows: [everything]", "allows"),
        ("component: demo", "component: other", "stands in a folder named demo"),
    ],
)
def test_wrong_values(folder: Path, old: str, new: str, why: str) -> None:
    assert why in refused(folder, series("one", "two-b").replace(old, new, 1))


def test_when() -> None:
    when = When.model_validate({"version": ">=0.29,<0.33", "arches": ["sm90"]})
    assert when.holds("0.32.0", "sm90")
    assert when.holds("0.32.0rc1")
    assert not when.holds("0.33.0", "sm90")
    assert not when.holds("0.32.0", "sm100")
    assert When().holds("1.0", "sm90")


def test_the_project_s_own_series() -> None:
    root = Path(__file__).resolve().parents[2] / "patches"
    folders = sorted(p.parent for p in root.glob("*/series.yaml"))
    assert folders
    for folder in folders:
        assert load_patchset(folder).patches

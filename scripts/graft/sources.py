"""Where a component comes from when it is no file of a package index: git, archives, images.

Each string has a grammar, because it reaches git, an address or a Dockerfile. What is pinned by content (a commit, a
tree, a sha256, a digest) says which bytes; an address, a ref or a number only says where to look for them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from graft.yamlio import Model, grammar

#: One line of text for people.
Sentence = Annotated[
    str, grammar(r"[^\x00-\x1f\x7f]+", "one line of text: it says nothing, or holds control characters")
]

_HOST = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?"
#: No `..`, nothing that is encoded, no credentials, no query: an address is looked at by people and by logs.
_SEGMENT = r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._~+-]+)"
_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"

Commit = Annotated[
    str, grammar(r"[0-9a-f]{40}", "a commit: 40 hex digits in lower case; a branch, a tag and an abbreviation can move")
]
Tree = Annotated[str, grammar(r"[0-9a-f]{40}", "a git tree: 40 hex digits in lower case")]
Sha256 = Annotated[str, grammar(r"[0-9a-f]{64}", "a sha256: 64 hex digits in lower case")]
Digest = Annotated[str, grammar(r"sha256:[0-9a-f]{64}", "a digest: sha256: and 64 hex digits in lower case")]
HttpsUrl = Annotated[
    str, grammar(rf"https://{_HOST}{_SEGMENT}+", "an https address without credentials, query or `..`", 500)
]
HttpsPrefix = Annotated[
    str, grammar(rf"https://{_HOST}{_SEGMENT}*/?", "how https addresses begin, such as https://github.com/", 500)
]
Ref = Annotated[
    str, grammar(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/+-]*", "the name of a branch, a tag or refs/pull/N/head")
]
#: As the tools write it: `nvcr.io/nvidia/pytorch:26.07-py3`; the digest is a key of its own.
Reference = Annotated[
    str,
    grammar(
        rf"(?:{_HOST}/)?{_NAME}(?:/{_NAME})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?",
        "an image reference such as nvcr.io/nvidia/pytorch:26.07-py3 (its digest is a key of its own)",
    ),
]
TreePath = Annotated[
    str,
    grammar(
        r"(?:(?!\.\.?(?:/|$))[A-Za-z0-9._+-]+)(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._+-]+)*",
        "a path in a source tree, such as third_party/cutlass",
    ),
]
ImagePath = Annotated[str, grammar(rf"{_SEGMENT}+", "an absolute path inside the image")]
PatchId = Annotated[str, grammar(r"[a-z0-9]+(?:-[a-z0-9]+)*", "a patch id: lower-case letters, digits, single dashes")]


class Pull(Model):
    """A pull request's head that is merged onto the commit.

    head: without it the number alone says which, and its head moves.
    url:  the repository that has the head, where it is not the source's own.
    note: for people; alone, it stands for a head that is known to be there and was never named.
    """

    number: int | None = Field(default=None, ge=1, le=10_000_000)
    head: Commit | None = None
    url: HttpsUrl | None = None
    note: Sentence | None = None

    @model_validator(mode="after")
    def _named(self) -> Pull:
        if self.number is None and self.head is None and self.note is None:
            raise ValueError("give its number, its head or both; a note alone where neither was published")
        return self

    @property
    def name(self) -> str:
        """`pull 31`, `head 000807e2b`, `an unnamed head`."""
        if self.number is not None:
            return f"pull {self.number}"
        return f"head {self.head[:9]}" if self.head else "an unnamed head"


class LostPatch(Model):
    """A patch of which the hash is known and the bytes are where nobody else can fetch them."""

    patch: PatchId
    sha256: Sha256
    because: Sentence


class GitSource(Model):
    """A commit, the heads merged onto it in this order, and then patches.

    ref:  a note for people: which branch or tag the commit was taken from. Never what is checked out.
    base: a commit that it must descend from, for a branch that carries changes on top of one.
    tree: the git tree that must come out of commit and heads, before any patch.
    submodules: path -> another address than `.gitmodules` has for it; null leaves the submodule out.
    """

    url: HttpsUrl
    commit: Commit
    ref: Ref | None = None
    base: Commit | None = None
    tree: Tree | None = None
    submodules: dict[TreePath, HttpsUrl | None] = Field(default_factory=dict)
    pulls: tuple[Pull, ...] = Field(default=(), strict=False)
    lost: tuple[LostPatch, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _once(self) -> GitSource:
        for what, names in (
            ("pull request", [str(p.number) for p in self.pulls if p.number is not None and p.url is None]),
            ("head", [p.head for p in self.pulls if p.head is not None]),
            ("patch", [lost.patch for lost in self.lost]),
        ):
            twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
            if twice is not None:
                raise ValueError(f"{what} {twice} is listed twice")
        return self

    @property
    def host(self) -> str:
        return host_of(self.url)


class ArchiveSource(Model):
    """A file at an address, by its hash."""

    url: HttpsUrl
    sha256: Sha256

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


class ImageSource(Model):
    """An image by digest, and the folders in it that hold the wheels to install."""

    reference: Reference
    digest: Digest | None = None
    paths: tuple[ImagePath, ...] = Field(min_length=1, strict=False)


def host_of(url: str) -> str:
    """The host of an https address."""
    return url.removeprefix("https://").partition("/")[0]


def registry_of(reference: str) -> str:
    """The host that serves an image: the first part where it is one, else Docker's own."""
    first, slash, _ = reference.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "registry-1.docker.io"

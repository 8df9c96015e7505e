"""A pull request or a commit, read from its git host or from a local clone.

From a host: only by the transports of its address, and only what the head and its base need. From a clone: only the
objects, by their ids; its configuration, attributes, hooks, grafts and replaced objects are not looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graft.errors import BadInput, FetchFailed
from graft.patching.repository import Commit, Repository, bare, git_folder, object_folder

SHA = re.compile(r"^[0-9a-f]{40}$")
HOST = r"https://(?P<host>[A-Za-z0-9.-]+(?::[0-9]+)?)/"
NAME = r"[A-Za-z0-9._~-]+"
#: GitHub, Gitea and Forgejo; GitLab.
FORMS = (
    re.compile(rf"{HOST}(?P<repo>{NAME}/{NAME})/(?P<kind>pull|pulls|commit)/(?P<name>[0-9a-f]+)(?:[/?#.].*)?"),
    re.compile(rf"{HOST}(?P<repo>{NAME}(?:/{NAME})+)/-/(?P<kind>merge_requests|commit)/(?P<name>[0-9a-f]+)(?:[/?#.].*)?"),
)  # fmt: skip
KNOWN = (
    "https://HOST/OWNER/REPO/pull/NUMBER, .../commit/SHA, .../-/merge_requests/NUMBER or .../-/commit/SHA, "
    "without a name or password in it"
)
#: What reaching a host may need of this one's environment; none of it is written anywhere.
HOST_VARIABLES = (
    "https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_PROXY_SSL_CAINFO",
)  # fmt: skip
#: Certificates that other programs of the host are told to use; git has a name of its own for them.
OTHER_CERTIFICATES = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
#: A host that sends less than 1000 bytes in a second for a minute is given up.
NETWORK = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60", "-c", "http.followRedirects=initial")
HEAD, DEFAULT, BASE = "refs/graft/head", "refs/graft/default", "refs/graft/base"


@dataclass(frozen=True)
class Address:
    """What the address of a pull request or commit says. origin: in the form that a record keeps."""

    host: str
    repository: str
    kind: Literal["pull", "merge", "commit"]
    name: str
    origin: str

    @property
    def ref(self) -> str | None:
        """Where the host keeps the head of a pull request; None for a commit."""
        folder = {"pull": "pull", "merge": "merge-requests"}.get(self.kind)
        return f"refs/{folder}/{self.name}/head" if folder else None


@dataclass(frozen=True)
class Upstream:
    """The repository with everything that the difference needs. default: the head of its default branch, if known."""

    repository: Repository
    head: Commit
    default: str | None
    where: str


def parse_url(url: str) -> Address:
    """The address of a pull request or commit. Raises BadInput."""
    for form in FORMS:
        match = form.fullmatch(url)
        if match is None or ".." in match["repo"]:
            continue
        repo = match["repo"].removesuffix(".git")
        kind: Literal["pull", "merge", "commit"] = "commit"
        if match["kind"] != "commit":
            kind = "merge" if match["kind"] == "merge_requests" else "pull"
            if not match["name"].isdigit():
                continue
        origin = url[: match.end("name")]
        return Address(match["host"], f"https://{match['host']}/{repo}", kind, match["name"], origin)
    raise BadInput(f"{url!r} is not the address of a pull request or commit", where="URL", cure=f"one of {KNOWN}")


def check_sha(value: str, option: str) -> None:
    """Raises BadInput unless it is a whole commit id."""
    if not SHA.fullmatch(value):
        raise BadInput(f"{value!r} is not a commit id", where=option, cure="40 lower-case hex digits")


@contextmanager
def from_host(address: Address, head: str, base: str | None, url: str) -> Iterator[Upstream]:
    """Fetch from a git host. url: the address of its repository.

    Raises FetchFailed: not reachable, no such pull request or commit, or another head than `head`.
    """
    scheme = url.partition(":")[0]
    with bare(env={**host_environment(os.environ), "GIT_ALLOW_PROTOCOL": scheme}) as repository:
        refs = _listed(repository, address, url)
        if address.ref is not None:
            _refuse_other_head(address, refs.get(address.ref), head)
        wanted = [f"+{address.ref or head}:{HEAD}"]
        history = ["--filter=blob:none", f"--depth={1 if base else 2}"]
        if base is not None:
            wanted.append(f"+{base}:{BASE}")
        elif address.ref is not None:
            # Commits alone: the merge base is only known from all of them. Files come when they are read.
            history = ["--filter=tree:0"]
            wanted += [f"+HEAD:{DEFAULT}"] if "HEAD" in refs else []
        repository.git("config", "remote.origin.url", url)
        _network(repository, address, "fetch", "--quiet", "--no-tags", *history, "origin", *wanted)
        found = repository.git("rev-parse", "--verify", HEAD).stdout.strip()
        if found != head:
            _refuse_other_head(address, found, head)
        default = repository.git("rev-parse", "--verify", "--quiet", DEFAULT, check=False).stdout.strip() or None
        yield Upstream(repository, repository.commit(head), default, address.host)


@contextmanager
def from_clone(place: Path, head: str, base: str | None) -> Iterator[Upstream]:
    """Read from a local clone, without network. Raises BadInput and FetchFailed."""
    git = git_folder(place)
    default = _default_of(Repository(git)) if base is None else None
    with bare(object_folder(git)) as repository:
        for name in filter(None, (head, base)):
            if not repository.has(name):
                raise FetchFailed(
                    f"the clone does not have commit {name}",
                    where=str(place),
                    cure=f"git -C {place} fetch origin {name}",
                )
        yield Upstream(repository, repository.commit(head), default, str(place))


def base_of(upstream: Upstream, address: Address, given: str | None) -> str:
    """The commit that the head is compared with. Raises BadInput where that cannot be said without being told."""
    head = upstream.head
    if given is not None:
        return given
    if address.kind == "commit":
        if len(head.parents) != 1:
            what = "a merge" if head.parents else "the first commit of its history"
            raise BadInput(f"commit {head.id} is {what}", where="--head", cure=TELL)
        return head.parents[0]
    if upstream.default is None:
        raise BadInput("the default branch is not known, so neither is the merge base", where=upstream.where, cure=TELL)
    base = _merge_base(upstream, upstream.default)
    return base if base != head.id else _before_merge(upstream, upstream.default)


TELL = "say what it is the difference from: --base SHA"


def _merge_base(upstream: Upstream, other: str) -> str:
    found = upstream.repository.git("merge-base", "--all", upstream.head.id, other, check=False)
    bases = found.stdout.split()
    if found.rc != 0 or not bases:
        raise BadInput("no merge base with the default branch was found", where=upstream.where, cure=TELL)
    if len(bases) > 1:
        raise BadInput(f"it has several merge bases: {', '.join(bases)}", where=upstream.where, cure=TELL)
    return bases[0]


def _before_merge(upstream: Upstream, default: str) -> str:
    """The base of a pull request that was merged: the default branch as it was before the merge says it."""
    span = f"{upstream.head.id}..{default}"
    above = set(upstream.repository.git("rev-list", "--ancestry-path", span).stdout.split())
    line = upstream.repository.git("rev-list", "--first-parent", span).stdout.split()
    merges = [commit for commit in line if commit in above]
    if merges:
        merge = upstream.repository.commit(merges[-1])
        if len(merge.parents) > 1:
            base = _merge_base(upstream, merge.parents[0])
            if base != upstream.head.id:
                return base
    raise BadInput("the default branch holds the pull request already", where=upstream.where, cure=TELL)


def _listed(repository: Repository, address: Address, url: str) -> dict[str, str]:
    patterns = ["HEAD", *([address.ref] if address.ref else [])]
    listed = _network(repository, address, "ls-remote", "--", url, *patterns)
    refs = {name: sha for sha, name in (line.split("\t") for line in listed.splitlines() if "\t" in line)}
    if not refs:
        # A page for people, as a login or an error, is read by git as a repository without anything in it.
        raise FetchFailed(
            f"{address.host}: no git repository answers at {address.repository}",
            where=address.origin,
            cure="check the address; a repository that needs a login: clone it by hand and use --from CLONE",
        )
    return refs


def _network(repository: Repository, address: Address, *argv: str) -> str:
    return repository.git(
        *NETWORK,
        *argv,
        error=FetchFailed,
        what=f"{address.host}: git {argv[0]} of {address.repository} failed",
        cure="check the address, the network and the proxy; or clone it by hand and use --from CLONE",
    ).stdout


def _refuse_other_head(address: Address, found: str | None, head: str) -> None:
    if found is None:
        raise FetchFailed(
            f"{address.host} has no {address.ref}", where=address.origin, cure="check the number in the address"
        )
    if found != head:
        raise FetchFailed(
            f"the head is {found}, not {head}",
            where=address.origin,
            cure=f"look at what changed; if it is right: --head {found}",
        )


def host_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What git needs of this host to reach another one: proxies and certificates, nothing else."""
    found = {name: environ[name] for name in HOST_VARIABLES if environ.get(name)}
    other = next((environ[name] for name in OTHER_CERTIFICATES if environ.get(name)), None)
    return {**({"GIT_SSL_CAINFO": other} if other else {}), **found}


def _default_of(clone: Repository) -> str | None:
    """The head of a clone's default branch, as it knows its origin."""
    for ref in ("refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/remotes/origin/master", "HEAD"):
        found = clone.git("rev-parse", "--verify", "--quiet", ref, check=False)
        if found.rc == 0:
            return found.stdout.strip()
    return None

#!/bin/bash
# Makes a component's source tree: a commit, the heads merged onto it in order, its patches, and the submodules of the result.
#
# usage: checkout-git.sh CONTEXT TARGET
#   CONTEXT   folder with bare repositories: repo.git, and modules/COMMIT.git for each submodule, at any depth
#   COMMIT    the commit, 40 hex digits
#   HEADS     what is merged onto it, in this order: commits, or refs of repo.git
#   TREE      the git tree that commit and heads must give (optional)
#   PATCHES   SHA256:FILE below /run/graft/patches, applied in this order after that (optional)
#
# Exit 5 when the tree is not the wanted one, a head does not merge, or a patch is another one or does not apply. Objects are
# never believed by name: index-pack names each one by its own hash. Neither a ref nor a date decides on any byte of the tree.
set -euo pipefail
context=$1 target=$2
: "${COMMIT:?}"
umask 022
exec </dev/null

mismatch() {
    echo "checkout-git: $*" >&2
    exit 5
}

for name in $(env | sed -n 's/^\(GIT_[A-Z0-9_]*\)=.*/\1/p'); do
    unset "$name"
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LC_ALL=C HOME="$scratch" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=graft GIT_AUTHOR_EMAIL=graft@localhost GIT_AUTHOR_DATE='1577836800 +0000'
export GIT_COMMITTER_NAME=graft GIT_COMMITTER_EMAIL=graft@localhost GIT_COMMITTER_DATE='1577836800 +0000'

# take REPOSITORY TARGET COMMIT...: a work tree with these commits and what they reach, and nothing else of the repository.
take() {
    repository=$1 into=$2
    shift 2
    test -d "$repository" || mismatch "there is no $repository"
    mkdir -p "$into"
    git init --quiet --template= "$into"
    # Bytes as they are committed, whatever .gitattributes say; a filter would run a program.
    mkdir -p "$into/.git/info"
    echo '* -text -eol -ident -filter -working-tree-encoding' >"$into/.git/info/attributes"
    if [ -f "$repository/shallow" ]; then
        cp "$repository/shallow" "$into/.git/shallow"
    fi
    printf '%s\n' "$@" | git --git-dir "$repository" pack-objects --quiet --revs --stdout >"$scratch/pack" 2>"$scratch/said" || {
        cat "$scratch/said" >&2
        mismatch "there is no $* in $repository, or not all of it"
    }
    git -C "$into" index-pack --stdin <"$scratch/pack" >/dev/null
    rm "$scratch/pack"
}
run_git() {
    git -c core.autocrlf=false -c core.fileMode=true -c core.hooksPath=/dev/null -c core.symlinks=true \
        -c merge.renames=true -c merge.renameLimit=0 -c rerere.enabled=false -c advice.detachedHead=false "$@"
}
whole() { # whole TARGET: git ends with 0 where it could not read an object, so what lies there is compared with what should
    run_git -C "$1" diff-index --quiet --ignore-submodules=all HEAD -- || mismatch "$context does not hold all of $1"
}
checkout() { # checkout TARGET COMMIT
    test "$(git -C "$1" cat-file -t "$2" 2>/dev/null)" = commit || mismatch "$2 is no commit of $context"
    run_git -C "$1" checkout --quiet --detach "$2"
    whole "$1"
}
submodules() { # submodules TARGET: what the tree says, each by its commit
    git -C "$1" ls-files --stage -z | while IFS= read -r -d '' entry; do
        if [ "${entry%% *}" = 160000 ]; then
            printf '%s\0' "${entry#* }"
        fi
    done | while IFS= read -r -d '' entry; do
        commit=${entry%% *} path=${entry#*$'\t'}
        test -d "$context/modules/$commit.git" || mismatch "submodule $path is $commit, and modules/$commit.git is not there"
        take "$context/modules/$commit.git" "$1/$path" "$commit"
        checkout "$1/$path" "$commit"
        submodules "$1/$path"
    done
}

heads=()
for head in ${HEADS:-}; do
    commit=$(git --git-dir "$context/repo.git" rev-parse --quiet --verify "$head^{commit}") || mismatch "there is no head $head in $context"
    heads+=("$commit")
done
take "$context/repo.git" "$target" "$COMMIT" "${heads[@]}"
checkout "$target" "$COMMIT"
for head in "${heads[@]}"; do
    if ! run_git -C "$target" merge --quiet --no-ff --no-edit --no-gpg-sign -s ort -m "$head" "$head" >"$scratch/merge" 2>&1; then
        cat "$scratch/merge" >&2
        mismatch "$head does not merge onto what came before it"
    fi
done
whole "$target"
tree=$(git -C "$target" rev-parse 'HEAD^{tree}')
if [ -n "${TREE:-}" ] && [ "$tree" != "$TREE" ]; then
    mismatch "the tree is $tree, wanted is $TREE"
fi
for pin in ${PATCHES:-}; do
    file=${PATCHES_DIR:-/run/graft/patches}/${pin#*:}
    found=$(sha256sum <"$file") || mismatch "${pin#*:} is not there"
    test "${found%% *}" = "${pin%%:*}" || mismatch "${pin#*:} has sha256 ${found%% *}, wanted is ${pin%%:*}"
    before=$(git -C "$target" write-tree)
    run_git -C "$target" apply --index --whitespace=nowarn "$file" || mismatch "${pin#*:} does not apply"
    test "$(git -C "$target" write-tree)" != "$before" || mismatch "${pin#*:} changed nothing"
done
submodules "$target"

# What is handed to the build has no history: a build that asks git for a version would get another one each time.
find "$target" -name .git -prune -exec rm -rf {} +
find "$target" -exec touch --no-dereference --date=@1577836800 {} +
echo "checkout-git: $COMMIT, tree $tree"

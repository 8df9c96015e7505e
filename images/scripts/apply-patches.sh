#!/bin/sh
# Applies a component's patches to its pristine files: all of them, with the locked result, or none.
#
#   WORKTREE       folder with the pristine files
#   PATCHES        folder with `series` (one patch file per line, in order) and the patches; `touched`, when it is
#                  there, holds `BLOB-BEFORE BLOB-AFTER PATH` per file (`-`: no file) and names what differs
#   PRISTINE_TREE  git tree id before the first patch, and RESULT_TREE after the last
#
# Exit 5 when a tree is not the locked one; the files are then as they were. git runs in a scratch repository, cut off
# from every configuration and from any repository around it: there `git apply` would exit 0 and do nothing. So its
# exit status is not believed, only the ids of the trees are. scripts/graft/patching/git.py does the same on the host.
set -eu
: "${WORKTREE:?}" "${PATCHES:?}" "${PRISTINE_TREE:?}" "${RESULT_TREE:?}"
umask 022
exec </dev/null

mismatch() {
    echo "apply-patches.sh: $*" >&2
    exit 5
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
for name in $(env | sed -n 's/^\(GIT_[A-Z0-9_]*\)=.*/\1/p'); do
    unset "$name"
done
WORKTREE=$(cd "$WORKTREE" && pwd -P)
PATCHES=$(cd "$PATCHES" && pwd -P)
export LC_ALL=C HOME="$scratch" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
export GIT_DIR="$scratch/git" GIT_WORK_TREE="$WORKTREE" GIT_INDEX_FILE="$scratch/index" GIT_CEILING_DIRECTORIES="$scratch"

run_git() {
    git -c core.autocrlf=false -c core.safecrlf=false -c core.fileMode=true -c core.ignoreCase=false \
        -c core.precomposeUnicode=false -c core.hooksPath=/dev/null -c core.fsmonitor=false \
        -c apply.whitespace=nowarn -c apply.ignoreWhitespace=no "$@"
}

cd "$WORKTREE"
test -z "$(find . -name .git -print -quit)" || mismatch "there is a .git in $WORKTREE: these are not pristine files"
test -z "$(find . ! -type f ! -type d -print -quit)" || mismatch "there is a link or a device in $WORKTREE"
run_git init --quiet --template=
mkdir -p "$GIT_DIR/info"
# .gitattributes of the source must not change any byte.
echo '* -text -eol -ident -filter -working-tree-encoding' >"$GIT_DIR/info/attributes"

# Modes as git knows them, wherever the files come from.
find . -type f -perm /111 -exec chmod 755 {} +
find . -type f ! -perm /111 -exec chmod 644 {} +

# Names the files whose blob is not the one in column $1 of `touched` (1: before, 2: after).
differing() {
    test -f "$PATCHES/touched" || return 0
    while read -r before after path; do
        expected=$before
        test "$1" = 1 || expected=$after
        found=$(run_git rev-parse --quiet --verify ":$path" || echo -)
        test "$found" = "$expected" || echo "  $path is $found, locked is $expected"
    done <"$PATCHES/touched"
}

run_git add --all --force -- .
tree=$(run_git write-tree)
if [ "$tree" != "$PRISTINE_TREE" ]; then
    differing 1 >&2
    mismatch "the pristine tree is $tree, locked is $PRISTINE_TREE"
fi

applied=0
while read -r patch; do
    test -n "$patch" || continue
    test -f "$PATCHES/$patch" || mismatch "$patch is in the series but not in $PATCHES"
    run_git apply --cached --whitespace=nowarn -p1 -- "$PATCHES/$patch" || mismatch "$patch does not apply; none was applied"
    previous=$tree
    tree=$(run_git write-tree)
    test "$tree" != "$previous" || mismatch "$patch changed nothing; none was applied"
    applied=$((applied + 1))
done <"$PATCHES/series"
test "$applied" -gt 0 || mismatch "$PATCHES/series names no patch"
if [ "$tree" != "$RESULT_TREE" ]; then
    differing 2 >&2
    mismatch "after $(tr '\n' ' ' <"$PATCHES/series")the tree is $tree, locked is $RESULT_TREE; none was applied"
fi

# From here on the files change. A fresh index shows afterwards what is really on disk.
run_git diff-index --cached --name-only --no-renames -z --diff-filter=D "$PRISTINE_TREE" -- | xargs -0 -r rm -f --
run_git checkout-index --force --all
if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
    run_git diff-index --cached --name-only --no-renames -z --diff-filter=d "$PRISTINE_TREE" -- |
        xargs -0 -r touch --date="@$SOURCE_DATE_EPOCH" --
fi
rm -f "$GIT_INDEX_FILE"
run_git add --all --force -- .
tree=$(run_git write-tree)
test "$tree" = "$RESULT_TREE" || mismatch "the files on disk are $tree, locked is $RESULT_TREE"
echo "apply-patches.sh: $applied applied, tree $tree"

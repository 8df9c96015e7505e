#!/bin/bash
# Unpacks a source tree from git or an archive, as the host packed it, and applies its patches: all of them, or none.
#
# usage: unpack-tree.sh FILE TARGET
#   TREE      git tree id of the files in FILE
#   PATCHES   folder with `series` (one patch file per line, in order) and the patches (optional)
#   RESULT    git tree id after the last patch
#
# Exit 5 when a tree is not the locked one. git's exit status is not believed, only the ids of the trees are.
set -euo pipefail
file=$1 target=$2
: "${TREE:?}"
umask 022
exec </dev/null

mismatch() {
    echo "unpack-tree.sh: $*" >&2
    exit 5
}

for name in $(env | sed -n 's/^\(GIT_[A-Z0-9_]*\)=.*/\1/p'); do
    unset "$name"
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$target"
tar --extract --file "$file" --directory "$target" --strip-components 1 --no-same-owner --no-same-permissions

export LC_ALL=C HOME="$scratch" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
export GIT_DIR="$scratch/git" GIT_WORK_TREE="$target" GIT_INDEX_FILE="$scratch/index"
run_git() {
    git -c core.autocrlf=false -c core.safecrlf=false -c core.fileMode=true -c core.ignoreCase=false -c core.symlinks=true \
        -c core.precomposeUnicode=false -c core.hooksPath=/dev/null -c core.fsmonitor=false \
        -c apply.whitespace=nowarn -c apply.ignoreWhitespace=no "$@"
}
tree_of_disk() {
    rm -f "$GIT_INDEX_FILE"
    run_git add --all --force -- .
    run_git write-tree
}

cd "$target"
run_git init --quiet --template=
mkdir -p "$GIT_DIR/info"
echo '* -text -eol -ident -filter -working-tree-encoding' >"$GIT_DIR/info/attributes"
tree=$(tree_of_disk)
test "$tree" = "$TREE" || mismatch "the pristine tree is $tree, locked is $TREE"
if [ -n "${PATCHES:-}" ]; then
    applied=0
    while read -r patch; do
        test -n "$patch" || continue
        before=$tree
        run_git apply --index --whitespace=nowarn -p1 -- "$PATCHES/$patch" || mismatch "$patch does not apply"
        tree=$(run_git write-tree)
        test "$tree" != "$before" || mismatch "$patch changed nothing"
        applied=$((applied + 1))
    done <"$PATCHES/series"
    test "$applied" -gt 0 || mismatch "$PATCHES/series names no patch"
    test "$tree" = "${RESULT:?}" || mismatch "after $(tr '\n' ' ' <"$PATCHES/series")the tree is $tree, locked is $RESULT"
    tree=$(tree_of_disk)
    test "$tree" = "$RESULT" || mismatch "the files on disk are $tree, locked is $RESULT"
fi
# Times are no input of a build.
find . -exec touch --no-dereference --date=@1577836800 {} +
echo "unpack-tree: tree $tree"

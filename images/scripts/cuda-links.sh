#!/usr/bin/env bash
# Completes the CUDA toolkit that the nvidia-* wheels install (…/site-packages/nvidia/cu13), so that one can link with it.
#
# The wheels ship lib/ but not the lib64 that nvcc.profile and FlashInfer name, libX.so.N but not the libX.so that -lX
# looks for, and no libcuda.so at all (the driver brings it). This adds these names, as relative links, and a stub
# libcuda.so for the linker. Running it again changes nothing; the same toolkit and compiler give the same bytes.
#
# usage: cuda-links.sh [TOOLKIT_DIR]        (default: $CUDA_HOME; needs gcc, GNU binutils, awk)
set -euo pipefail
export LC_ALL=C
umask 022

toolkit=$(realpath -e "${1:-${CUDA_HOME:?give the toolkit directory, or set CUDA_HOME}}")
lib=$toolkit/lib
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "cuda-links: $*" >&2; exit 1; }

[[ -x $toolkit/bin/nvcc && -f $toolkit/include/cuda.h && -d $lib ]] \
  || fail "$toolkit is no CUDA toolkit: bin/nvcc, include/cuda.h and lib/ must be there"

link() { # link TARGET NAME: a relative link that must not hide anything else
  if [[ -L $2 ]]; then
    [[ $(readlink "$2") == "$1" ]] || fail "$2 points to $(readlink "$2"), not to $1"
  elif [[ -e $2 ]]; then
    fail "$2 exists and is no link"
  else
    ln -s "$1" "$2"
  fi
}

link lib "$toolkit/lib64"
shopt -s nullglob
for file in "$lib"/lib*.so.*; do
  name=${file##*/}
  link_name=${name%%.so.*}.so
  # A library that ships its own link name keeps it. Two versions of one library end in fail() above.
  [[ -e $lib/$link_name && ! -L $lib/$link_name ]] || link "$name" "$lib/$link_name"
done
[[ -e $lib/libcudart.so ]] || fail "$lib holds no libcudart.so.*"

# The stub defines every driver entry point that cuda.h knows, in all its versions, as NVIDIA's own stub does, and
# answers CUDA_ERROR_STUB_LIBRARY. Its soname is libcuda.so.1, so what is linked with it asks for the driver's library
# at run time; its file is called libcuda.so and lies in lib/stubs, where no loader looks.
for variant in "" -D__CUDA_API_VERSION_INTERNAL -D__CUDA_API_PER_THREAD_DEFAULT_STREAM; do
  # shellcheck disable=SC2086  # an empty variant is no argument
  gcc -E -P $variant -I "$toolkit/include" -include cuda.h -x c /dev/null | tr '\n' ' ' >"$work/cuda.i"
  grep -oE 'CUresult +cu[A-Z][A-Za-z0-9_]*\(' "$work/cuda.i"
done | sed -E 's/^CUresult +//; s/\($//' | sort -u >"$work/symbols"
grep -qx cuInit "$work/symbols" || fail "cuda.h declares no cuInit: its format has changed"
awk '{ print "int " $1 "(void) { return 34; }" }' "$work/symbols" >"$work/libcuda.c"
mkdir -p "$lib/stubs"
# No build id, no symbol table: nothing of this machine or moment gets into the file.
gcc -shared -fPIC -O1 -nostdlib -s -Wl,-soname,libcuda.so.1 -Wl,--build-id=none -o "$work/libcuda.so" "$work/libcuda.c"
cmp -s "$work/libcuda.so" "$lib/stubs/libcuda.so" || install -m 0644 "$work/libcuda.so" "$lib/stubs/libcuda.so"
# The time of this run would make every build's layer another one; install-wheels.sh sets the same date.
find "$toolkit" "$lib" "$lib/stubs" -maxdepth 1 \( -type l -o -type d -o -name libcuda.so \) \
  -exec touch --no-dereference --date=@1577836800 {} +

# Proof: what these names are for works, by the C compiler as FlashInfer links, and by nvcc.
cat >"$work/probe.cu" <<'C'
#include <cstdio>
#include <cuda_runtime_api.h>
int main() {
  int version = 0;
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) return 1;
  std::printf("%d\n", version);
  return 0;
}
C
cat >"$work/driver.c" <<'C'
#include <cuda.h>
int main(void) { return cuInit(0) == CUDA_SUCCESS ? 0 : 1; }
C
want=$(awk '$2 == "CUDART_VERSION" { print $3 }' "$toolkit/include/cuda_runtime_api.h")
paths=(-I "$toolkit/include" -L "$toolkit/lib64" -L "$toolkit/lib64/stubs")
g++ -x c++ "$work/probe.cu" "${paths[@]}" -Wl,-rpath,"$lib" -lcudart -o "$work/probe-g++"
"$toolkit/bin/nvcc" --objdir-as-tempdir -cudart shared -Xlinker -rpath="$lib" "$work/probe.cu" -o "$work/probe-nvcc"
for probe in probe-g++ probe-nvcc; do
  got=$("$work/$probe")
  [[ $got == "$want" ]] || fail "$probe runs with CUDA runtime $got, the headers are $want"
done
gcc "$work/driver.c" "${paths[@]}" -Wl,-rpath,"$lib" -lcudart -lcuda -o "$work/driver"
ldd "$work/driver" >"$work/ldd"
grep -q 'libcuda\.so\.1' "$work/ldd" || fail "a program that was linked with the stub does not ask for libcuda.so.1"
found=$(awk -v dir="$toolkit/" '$1 == "libcuda.so.1" && index($3, dir) == 1 { print $3 }' "$work/ldd")
[[ -z $found ]] || fail "the loader finds the stub: $found"

echo "cuda-links: $toolkit: CUDA runtime $want, stub libcuda.so with $(wc -l <"$work/symbols") symbols"

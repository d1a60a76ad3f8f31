#!/bin/bash
# test-install.sh pkg-config|cmake|tern-cc|two-objects|symbols|headers|nvcc - installs the build to a temporary place and
# does with it what a user would. TEST_SOURCE_ROOT, TEST_BUILD_ROOT, TEST_DEVICE are set by the build.
set -eu
case=$1 here=$TEST_SOURCE_ROOT/test/install
cd "$TMPDIR"
read -ra meson <<<"${MESON:-meson}"
"${meson[@]}" install -C "$TEST_BUILD_ROOT" --no-rebuild --quiet --destdir "$TMPDIR/dest" >install.log 2>&1 || { cat install.log; exit 1; }
prefix=$(dirname "$(dirname "$(find dest -path '*/bin/tern-cc')")")
[ -n "$prefix" ] || { echo "tern-cc is not installed"; exit 1; }
# as moved: nothing may depend on where it was installed
mv "$prefix" "$TMPDIR/prefix"
prefix=$TMPDIR/prefix
libdir=$(dirname "$(find "$prefix" -name libtern.so)")
export PKG_CONFIG_PATH=$libdir/pkgconfig
cflags=(-std=gnu17 -Wall -Wextra -Werror)

# run PROGRAM...: on the CUDA device without a GPU a program says so, with status 77
run() {
    local status=0
    "$@" || status=$?
    [ $status = 0 ] || exit $status
}

# whether programs that use kernels can run here: the first of them says so
run_kernels() {
    if [ "$TEST_DEVICE" = cuda ] && ! nvidia-smi -L >/dev/null 2>&1; then
        echo "skipped: no GPU; compiled and linked only"
        exit 77
    fi
    run "$@"
}

case $case in
pkg-config)
    # shellcheck disable=SC2046 # flags are words
    cc "${cflags[@]}" "$here/host.c" -o host $(pkg-config --cflags --libs tern) -Wl,-rpath,"$libdir"
    [ "$(pkg-config --modversion tern)" = "$("$prefix/bin/tern-info" --version | sed 's/tern \([0-9.]*\),.*/\1/')" ]
    [ "$(pkg-config --variable=device tern)" = "$TEST_DEVICE" ]
    run ./host
    ;;
cmake)
    command -v cmake >/dev/null || { echo "skipped: there is no cmake"; exit 77; }
    cmake -G Ninja -S "$here" -B cmake -DCMAKE_PREFIX_PATH="$prefix" -DSOURCES="$here" \
        -DKERNEL="$TEST_SOURCE_ROOT/examples/put_signal.cu" >cmake.log || { cat cmake.log; exit 1; }
    cmake --build cmake >>cmake.log 2>&1 || { cat cmake.log; exit 1; }
    run_kernels cmake/kernel
    run cmake/host
    ;;
tern-cc)
    "$prefix/bin/tern-cc" -o kernel "$TEST_SOURCE_ROOT/examples/put_signal.cu"
    "$prefix/bin/tern-cc" -c "$TEST_SOURCE_ROOT/examples/put_signal.cu" -o kernel.o -MD -MF kernel.d
    grep -q 'put_signal.cu' kernel.d
    "$prefix/bin/tern-cc" -o kernel2 kernel.o
    run_kernels ./kernel
    run_kernels ./kernel2
    ;;
two-objects)
    "$prefix/bin/tern-cc" -shared -fPIC -DNAME=add_first -o libfirst.so "$here/shared.cu"
    "$prefix/bin/tern-cc" -shared -fPIC -DNAME=add_second -o libsecond.so "$here/shared.cu"
    "$prefix/bin/tern-cc" -o both "$here/two_objects.cu" -L. -lfirst -lsecond -Wl,-rpath,"$TMPDIR"
    run_kernels ./both
    ;;
symbols)
    soname=$(readelf -d "$libdir/libtern.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    [ "$soname" = libtern.so.0 ] || { echo "SONAME is '$soname', not libtern.so.0"; exit 1; }
    nm -D --defined-only "$libdir/libtern.so" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | LC_ALL=C sort >exported
    expected=$here/symbols-$TEST_DEVICE.txt
    if ! diff -u "$expected" exported; then
        echo "exported symbols differ from $expected (- missing, + new)"
        exit 1
    fi
    ;;
headers)
    # every installed header that a program may include compiles alone, and twice
    for header in "$prefix"/include/tern/*.h; do
        name=tern/$(basename "$header")
        printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$name" "$name" >one.c
        if [ "$name" != tern/device.h ]; then # device code is C++ to every compiler
            cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -c one.c -o one.o
            cp one.c one.cpp
            c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -c one.cpp -o one.o
        fi
        cp one.c one.cu
        "$prefix/bin/tern-cc" -Wall -Wextra -Werror -c one.cu -o one.o
        echo "$name: ok"
    done
    ;;
nvcc)
    PATH=$PATH:/usr/local/cuda/bin
    command -v nvcc >/dev/null || { echo "skipped: there is no nvcc"; exit 77; }
    # plain nvcc, no -rdc, no device library; kernels from two files in one program
    nvcc -I"$prefix/include" -c "$TEST_SOURCE_ROOT/examples/put_signal.cu" -o kernel.o
    nvcc -I"$prefix/include" -Xcompiler -fPIC -DNAME=add_first -c "$here/shared.cu" -o first.o
    for header in "$prefix"/include/tern/*.h; do
        printf '#include <tern/%s>\n' "$(basename "$header")" >one.cu
        nvcc -I"$prefix/include" -std=c++17 -Werror all-warnings -c one.cu -o one.o
        echo "tern/$(basename "$header"): ok"
    done
    nm kernel.o | grep -q ' U tern_init$'
    if nm kernel.o | grep ' U .*nvlink\|__cudaRegisterLinkedBinary'; then
        echo "the object needs a device link"
        exit 1
    fi
    ;;
*)
    echo "unknown case '$case'" >&2
    exit 2
    ;;
esac

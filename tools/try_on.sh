#!/usr/bin/env bash
# Builds and tests on another Debian release, MPI, HDF5 or compiler, in a system of its own below a folder:
#
#   tools/try_on.sh RELEASE [--mpi openmpi|mpich] [--hdf5 serial|openmpi|mpich] [--compiler gcc|clang|gcc-13|...]
#                   [--in FOLDER] [--mirror URL] [COMMAND...]
#
#   tools/try_on.sh trixie --mpi mpich                          the short suite: tools/test.sh
#   tools/try_on.sh trixie --compiler clang tools/build.sh      the build alone
#   tools/try_on.sh bookworm tools/test.sh -R 'comm|engine'
#
# COMMAND runs in a copy of this checkout, with uncommitted changes, and its exit code is this script's. FOLDER
# [build/systems] keeps systems, what was fetched and what was built: a second call begins at once. LibTorch is that
# of this checkout's .deps, or FEDHPC_TORCH. Packages are from where this machine's own are, or from --mirror.
# Needs root and debootstrap. Mounts and processes end with the script, whatever ends it.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'try_on: %s\n' "$1" >&2; exit 2; }

if [ "${1:-}" != --within ]; then  # mounts and processes of its own
  [ "$(id -u)" -eq 0 ] || fail "no root rights: mounts and chroot need them"
  PATH=$PATH:/usr/sbin:/sbin
  command -v debootstrap >/dev/null || fail "no debootstrap; the package debootstrap has it"
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --propagation private tools/try_on.sh --within "$@" <&0 &
  trap 'kill -KILL $!' INT TERM
  wait $!
  exit
fi
shift
release=${1:-}
[[ $release =~ ^[a-z]+$ ]] || fail "usage: tools/try_on.sh RELEASE [OPTIONS] [COMMAND...]; its first lines tell more"
shift
mpi=openmpi hdf5=serial compiler=gcc folder=build/systems mirror=
while [[ ${1:-} == --* ]]; do
  [ $# -gt 1 ] || fail "$1 wants a value"
  case $1=$2 in
    --mpi=openmpi | --mpi=mpich) mpi=$2 ;;
    --hdf5=serial | --hdf5=openmpi | --hdf5=mpich) hdf5=$2 ;;
    --compiler=gcc* | --compiler=clang*) compiler=$2 ;;
    --in=*) folder=$2 ;;
    --mirror=*) mirror=$2 ;;
    *) fail "unknown option '$1 $2'" ;;
  esac
  shift 2
done
[ $# -gt 0 ] || set -- tools/test.sh
case $compiler in
  gcc) cc=cc cxx=c++ package=g++ ;;
  gcc*) cc=$compiler cxx=g++${compiler#gcc} package=$cxx ;;
  *) cc=$compiler cxx=clang++${compiler#clang} package=$cc ;;
esac
torch=${FEDHPC_TORCH:-$PWD/.deps/site/torch}
[ -e "$torch" ] || fail "no LibTorch in $torch; tools/setup.sh fetches it"
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
  sed -n '/^Debian Debian /{s///p;q}')
[ -n "$mirror" ] || fail "this machine's own packages are not Debian's; name a mirror with --mirror"

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
root=$folder/$release-$mpi-$hdf5
mkdir -p "$folder"/cache/apt/partial "$root.build-$compiler"
exec 9>"$root.lock"
flock 9
if [ ! -e "$root" ]; then
  echo "try_on: $release from $mirror"
  rm -rf "$root.partial"
  debootstrap --variant=minbase --include=ca-certificates --cache-dir="$folder/cache/apt" "$release" "$root.partial" \
    "$mirror" >"$root.log" 2>&1 || fail "$(tail -n 3 "$root.log")"
  mv "$root.partial" "$root"
fi

# bind FROM TO: what TO holds is FROM's while this runs
bind() {
  mkdir -p "$root/$2"
  mount --rbind "$1" "$root/$2"
}
mount -t proc proc "$root/proc"
bind /dev dev
bind /sys sys
bind "$folder/cache" cache
bind "$folder/cache/apt" var/cache/apt/archives
bind "$root.build-$compiler" fedhpc/build
data=${FEDHPC_DATA:-$PWD/../shared/data}
[ ! -e "$data" ] || bind "$data" shared/data
rm -rf "$root"/tmp/*  # launchers leave folders named by process numbers, which begin anew
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"  # without its own name in a file, Open MPI looks for it for 5 s
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
certificates=/etc/ssl/certs/ca-certificates.crt
[ ! -e $certificates ] || cp $certificates "$root/etc/ssl/host.crt"

# What has not changed keeps its time and is not built again; what has gets this one, as objects may be newer than the change.
copy=$root/fedhpc.new
rm -rf "$copy"
mkdir -p "$copy" "$root/fedhpc"
git ls-files -z --cached --others --exclude-standard |
  tar -c --null --files-from=- --ignore-failed-read --warning=no-failed-read | tar -xm -C "$copy"
(cd "$copy" && find . -type f -print0) | while IFS= read -r -d '' file; do
  if cmp -s "$copy/$file" "$root/fedhpc/$file"; then touch -r "$root/fedhpc/$file" "$copy/$file"; fi
done
find "$root/fedhpc" -mindepth 1 -maxdepth 1 ! -name build ! -name .deps -exec rm -rf {} +
find "$copy" -mindepth 1 -maxdepth 1 -exec mv -t "$root/fedhpc" {} +
rmdir "$copy"
if [ -n "${FEDHPC_TORCH:-}" ]; then
  bind "$torch" torch
else
  bind "$(cd .deps/site && pwd -P)" fedhpc/.deps/site
fi

inside() {
  chroot "$root" env -i -C /fedhpc PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
    XDG_CACHE_HOME=/cache ${FEDHPC_TORCH:+FEDHPC_TORCH=/torch} FEDHPC_SETUP_MPI="$mpi" FEDHPC_SETUP_HDF5="${hdf5#serial}" \
    PIP_CERT=/etc/ssl/host.crt PIP_ROOT_USER_ACTION=ignore DEBIAN_FRONTEND=noninteractive CC="$cc" CXX="$cxx" "$@"
}
inside tools/setup.sh >&2
inside dpkg-query -s "$package" >/dev/null 2>&1 || inside apt-get install -y -qq --no-install-recommends "$package" >/dev/null
inside "$@"

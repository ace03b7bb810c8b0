#!/usr/bin/env bash
# A new Debian that has what README names and nothing else, and this checkout in it: what a stranger's machine is like.
# `make fresh` and CI run README's two commands there; `make matrix` runs the Slurm tests in newer ones.
#
# It is a folder with namespaces for its mounts, processes, host name and semaphores; the network is this machine's,
# since pip and apt download. So a cluster of `make cluster` must not run here meanwhile: both would use the same cables.
# 'apart' has a network of its own, with nothing in it: several can run side by side, and beside such a cluster.
set -Eeuo pipefail
umask 022
SELF=${BASH_SOURCE[0]}
CHECKOUT=$(cd "$(dirname "$SELF")/.." && pwd)

BASE=${HPCRUN_DEBIANS:-/var/tmp/hpcrun-debians} # some gigabytes for each suite
HOME_INSIDE=/root/hpcrun
BRIDGE=br-hpcrun # of dev/cluster.sh
CA_INSIDE=/etc/ssl/certs/ca-certificates.crt
LOCKS=() # descriptors

usage() {
  cat <<USAGE
usage: $SELF COMMAND SUITE ...        (root; SUITE is bookworm, trixie, ...)

  make SUITE [PACKAGE...]             make it anew, with README's packages, those named here, and this checkout
  keep SUITE [PACKAGE...]             the same, unless it is there with these packages: only the checkout is new then
  run SUITE COMMAND [ARGUMENT...]     run a command there, in $HOME_INSIDE
  apart SUITE COMMAND [ARGUMENT...]   the same in a network of its own, which leads nowhere
  online SUITE COMMAND [ARGUMENT...]  the same with this machine's network, for apt-get and pip: no Slurm there
  remove SUITE                        delete it

folder: $BASE (HPCRUN_DEBIANS)
USAGE
}

die() { # die STATUS MESSAGE
  printf 'debian.sh: %s\n' "$2" >&2
  exit "$1"
}
trap 'die 1 "line $LINENO failed: $BASH_COMMAND"' ERR

# --- checks -----------------------------------------------------------------------------------------------------

# Others may write in the folder above: what lies here could be somebody else's.
need_own_base() {
  mkdir -p "$BASE"
  [[ ! -L $BASE && $(stat --format='%u %A' "$BASE") == "0 drwx"?"-x"?"-x" ]] ||
    die 2 "$BASE must be a folder of root's that nobody else can write to (HPCRUN_DEBIANS names another)"
}

need_debian() { [[ -e $ROOT/etc/debian_version ]] || die 1 "there is no $ROOT: $SELF make $SUITE"; }

# One at a time in a Debian, and in all of those that share this machine's network: a cluster's cables have names.
only_one() { # only_one FILE; the lock goes with this process
  local lock
  exec {lock}>"$1"
  flock --nonblock "$lock" || {
    echo "debian.sh: waiting for another command in a Debian to end" >&2
    flock "$lock"
  }
  LOCKS+=("$lock")
}

need_no_cluster() {
  [[ ! -e /sys/class/net/$BRIDGE ]] || die 1 "a cluster is up on this machine: dev/cluster.sh down"
}

# --- what this machine hands on ---------------------------------------------------------------------------------

mirror() { # the mirror of Debian that this machine uses itself; none, and mmdebstrap knows one
  cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null |
    sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' | grep '/debian/\{0,1\}$' | head -n 1 || true
}

pip_files() { # the files that configure pip here
  local file
  for file in "${PIP_CONFIG_FILE:-}" /etc/pip.conf /etc/xdg/pip/pip.conf "$HOME"/{.pip,.config/pip}/pip.conf; do
    if [[ -n $file && -f $file ]]; then printf '%s\n' "$file"; fi
  done
}

# The certificates of this machine have one place there, given by variables that outrank pip's files.
pip_variables() {
  env | grep -E '^(PIP_[A-Z_]+|(https?|no)_proxy|(HTTPS?|NO)_PROXY)=' | grep -vE '^PIP_(CONFIG_FILE|CERT|CACHE_DIR)=' || true
}

# Folders in which pip looks for packages. An index has its files beside its folder "simple".
pip_folders() {
  local folder files
  mapfile -t files < <(pip_files)
  { cat /dev/null "${files[@]}" && pip_variables; } |
    grep -oE '(^|[ =]|file://)/[A-Za-z0-9/_.-]+' | sed -E 's,^([ =]|file://),,' |
    while read -r folder; do if [[ -d $folder ]]; then printf '%s\n' "${folder%/simple}"; fi; done | sort -u
}

certificates() { # the file with the certificates that this machine trusts
  local file
  for file in "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" "$CA_INSIDE"; do
    if [[ -n $file && -f $file ]]; then
      printf '%s\n' "$file"
      return
    fi
  done
}

# --- making one -------------------------------------------------------------------------------------------------

readme_packages() { sed -n 's/^apt-get install \([^#]*\).*/\1/p' "$CHECKOUT/README.md" | head -n 1; }

copy_checkout() { # as it is, with what is not committed yet; a virtual environment that is there stays
  mkdir -p "$ROOT$HOME_INSIDE"
  find "$ROOT$HOME_INSIDE" -mindepth 1 -maxdepth 1 ! -name '.venv*' -exec rm -rf {} +
  tar --create --directory "$CHECKOUT" --mode='u+rwX,go+rX,go-w' --exclude-vcs --exclude=__pycache__ \
    --exclude=./{.venv,.venv-trackers,.venv-recipes,.mutants,.hypothesis,'.*_cache',build,dist} . |
    tar --extract --directory "$ROOT$HOME_INSIDE" --no-same-owner
}

hand_on() { # hand_on FILE [AS]: a copy of this machine's file, if it has one
  [[ -z $1 || ! -f $1 ]] || install -D -m 644 "$1" "$ROOT${2:-$1}"
}

make_debian() {
  local packages file mirror
  read -ra packages <<<"$(readme_packages)"
  ((${#packages[@]})) || die 1 "README names no packages: there is no line 'apt-get install ...'"
  command -v mmdebstrap >/dev/null || die 1 "mmdebstrap is missing: apt-get install mmdebstrap"
  mapfile -t mirror < <(mirror)
  remove_debian
  mkdir "$BASE/$SUITE"
  # Check-Valid-Until: a mirror may be a copy of some months ago. force-unsafe-io: a power cut may take all of this.
  mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --dpkgopt=force-unsafe-io \
    --include="$(IFS=, && echo "${packages[*]},$*")" "$SUITE" "$ROOT" "${mirror[@]}"
  # As in a container, the services of a package are not started when it is installed.
  printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d"
  chmod 755 "$ROOT/usr/sbin/policy-rc.d"
  hand_on /etc/resolv.conf
  hand_on "$(certificates)" "$CA_INSIDE"
  while read -r file; do hand_on "$file" "/etc/pip.conf"; done < <(pip_files | tail -n 1)
  { cat /etc/hosts; echo "127.0.0.1 $SUITE"; } >"$ROOT/etc/hosts"
  copy_checkout
  echo "$*" >"$BASE/$SUITE/packages" # last: it is complete
}

keep_debian() {
  only_one "$BASE/$SUITE.lock"
  if [[ -e $BASE/$SUITE/packages && $(<"$BASE/$SUITE/packages") == "$*" ]]; then copy_checkout; else make_debian "$@"; fi
}

remove_debian() { rm -rf --one-file-system "${BASE:?}/${SUITE:?}"; }

# --- running in it ----------------------------------------------------------------------------------------------

# bash is process 1 there: it mounts, runs the command and reaps; with it ends all that the command left behind.
# shellcheck disable=SC2016  # the inner shell expands it
INSIDE='
  root=$1 name=$2 folders=$3
  shift 3
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  mkdir -p "$root/run/lock" "$root/run/netns"
  while read -r folder; do
    if [[ -z $folder ]]; then continue; fi
    mkdir -p "$root$folder"
    mount --bind -o ro "$folder" "$root$folder"
  done <<<"$folders"
  hostname "$name"
  if command -v ip >/dev/null; then ip link set lo up; fi
  chroot "$root" "$@"
'

run_inside() { # run_inside run|apart|online COMMAND...
  local verb=$1 network=() variables=() status=0 lock
  shift
  only_one "$BASE/$SUITE.lock"
  case $verb in
    apart) network=(--net) ;;
    run)
      only_one "$BASE/lock"
      need_no_cluster
      ;;
  esac
  mapfile -t variables < <(pip_variables; env | grep '^HPCRUN_REQUIRE' || true)
  if [[ -f $ROOT$CA_INSIDE ]]; then variables+=({PIP_CERT,SSL_CERT_FILE,REQUESTS_CA_BUNDLE}"=$CA_INSIDE"); fi
  # Nothing there holds the locks, and all of it ends where this one is killed.
  # shellcheck disable=SC2016  # the inner shell expands it
  (
    for lock in "${LOCKS[@]}"; do exec {lock}>&-; done
    exec setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child --uts --ipc "${network[@]}" \
      bash -euc "$INSIDE" debian.sh "$ROOT" "$SUITE" "$(pip_folders)" \
      /usr/bin/env -i HOME=/root USER=root LOGNAME=root SHELL=/bin/bash TERM="${TERM:-dumb}" \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${variables[@]}" \
      sh -c 'cd "$0" && exec "$@"' "$HOME_INSIDE" "$@"
  ) || status=$?
  # A cluster that was not brought down has ended with its processes; its bridge is the network's.
  if [[ $verb == run && -e /sys/class/net/$BRIDGE ]]; then ip link del "$BRIDGE"; fi
  return "$status"
}

main() {
  local verb=${1:-}
  [[ ${2:-} =~ ^[a-z]+$ ]] || {
    usage >&2
    die 2 "no suite, or not one: '${2:-}'"
  }
  SUITE=$2
  ROOT=$BASE/$SUITE/root
  ((EUID == 0)) || die 3 "not root (try: sudo $SELF $*)"
  need_own_base
  shift 2
  case $verb in
    make) make_debian "$@" ;;
    keep) keep_debian "$@" ;;
    run | apart | online)
      need_debian
      (($#)) || die 2 "run what?"
      trap - ERR # the status is the command's
      run_inside "$verb" "$@"
      ;;
    remove) remove_debian ;;
    *)
      usage >&2
      die 2 "not a command: '$verb'"
      ;;
  esac
}

main "$@"

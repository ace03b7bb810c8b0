#!/usr/bin/env bash
# A Slurm cluster of eleven nodes on this one machine, for hpcrun's tests and for trying things out; or a smaller one of
# another kind (up --as).
#
# All of Slurm is real and comes from Debian's packages: munge, slurmctld, slurmdbd on a MariaDB of its own, and
# one slurmd per node. A node is a network namespace with its own address and hostname, joined to the others by a
# bridge. Only the hardware is claimed: there is no GPU behind a node's gres, so train with gloo.
#
# The login host is this machine itself. One cluster at a time: the names below are the machine's, not the folder's.
set -Eeuo pipefail
umask 022                   # the ordinary user reads slurm.conf and reaches munge's socket
PATH=$PATH:/usr/sbin:/sbin  # where Debian keeps the daemons; su and cron leave it out
SELF=${BASH_SOURCE[0]}

ROOT=${HPCRUN_CLUSTER_DIR:-/tmp/hpcrun-cluster} # everything but the network and the hosts lines lies here
RESEARCHER=researcher                           # an ordinary user: root would pass every permission check
# The user is the machine's, and so shared by clusters in network namespaces of their own: which of them use it.
USERS=/run/hpcrun-clusters
LOGIN=hpc-login
NETWORK=10.78.0
BRIDGE=br-hpcrun
HOSTS_MARK='# hpcrun-cluster'
CTLD_PORT=27817 DBD_PORT=27819 DB_PORT=27833
RENDEZVOUS_PORTS=20000-27999 # from which a job takes its own: templates/allocation/port.sh.j2

# What a new user finds on a cluster:
#   many      several GPU types, a default partition, one account
#   one-type  one GPU type, a default partition, one account
#   limited   one GPU type, no default partition, two accounts to choose from, one partition for neither of them, and a
#             quality of service that refuses jobs of more than 4 GPUs or 4 hours
KIND=many
choose() { # choose KIND
  case $1 in # name:GPU type:GPUs. A node's place in this list is the last byte of its address.
    many) NODES=(
      a100-1:a100:4 a100-2:a100:4
      h100-1:h100:8 h100-2:h100:8
      v100-1:v100:4 v100-2:v100:4
      l40s-1:l40s:4 l40s-2:l40s:4
      h200-1:h200:8 a40-1:a40:4 cpu-1::0
    ) ;;
    one-type | limited) NODES=(a100-1:a100:4 a100-2:a100:4 cpu-1::0) ;;
    *) wrong_call "no such kind of cluster: '$1'; there are many, one-type and limited" ;;
  esac
  KIND=$1 NAMES=("${NODES[@]%%:*}")
}

# Exit statuses, for the tests: 1 something failed, 2 a wrong call, 3 this machine cannot run a cluster.
EXIT_FAILED=1 EXIT_USAGE=2 EXIT_CANNOT=3

export SLURM_CONF=$ROOT/etc/slurm.conf

usage() {
  cat <<USAGE
usage: $SELF COMMAND

  up [--no-accounting]      start the cluster (installs Debian's packages where they are missing)
  up --as KIND              start another one: one-type (one GPU type), limited (no default partition, two accounts,
                            limits), or many, which is the usual one
  down                      stop it and remove everything 'up' made
  check                     say whether this machine can run a cluster
  install                   install Debian's packages where they are missing; 'up' does it too
  status                    sinfo and squeue; fails where no cluster is up
  env                       eval "\$($SELF env)" points sbatch, squeue ... at it

  unplug NODE, plug NODE    pull a node's network cable, put it back
  block NODE, unblock NODE  let nobody connect to the node's ports $RENDEZVOUS_PORTS, as a firewall would; let them again
  full NODE                 leave no room in /tmp and /dev/shm of a node; stop and start it to undo this
  apart NODE                give a node a small disk of its own in /mnt; stop and start it to undo this
  stop WHAT, start WHAT     take a daemon away, bring it back: ctld, dbd or a node's slurmd

nodes: ${NAMES[*]}
ordinary user: $RESEARCHER    folder: $ROOT (HPCRUN_CLUSTER_DIR)
USAGE
}

say() { printf '%s\n' "$*"; }
die() { # die STATUS MESSAGE
  printf 'cluster.sh: %s\n' "$2" >&2
  exit "$1"
}
wrong_call() {
  usage >&2
  die $EXIT_USAGE "$1"
}
trap 'die $EXIT_FAILED "line $LINENO failed: $BASH_COMMAND"' ERR

wait_for() { # wait_for WHAT SECONDS COMMAND...
  local what=$1 deadline=$((SECONDS + $2))
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || die $EXIT_FAILED "waited in vain for $what; its log is in $ROOT/log"
    sleep 0.1
  done
}

# --- what this machine must offer -------------------------------------------------------------------------------

need_root() { ((EUID == 0)) || die $EXIT_CANNOT "not root (try: sudo $SELF ${CALL[*]})"; }

need_capable_machine() {
  need_root
  grep -Eqs '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release ||
    die $EXIT_CANNOT "not Debian or Ubuntu: the cluster is made of Debian's Slurm packages"
  unshare --net true 2>/dev/null ||
    die $EXIT_CANNOT "no network-namespace privilege (in a container: --privileged, or --cap-add SYS_ADMIN,NET_ADMIN)"
}

need_names_free() { # two clusters of the same names would resolve each other's nodes
  local other
  other=$(hosts_of_others | awk -v names="$LOGIN ${NAMES[*]}" '
    BEGIN { split(names, list); for (i in list) ours[list[i]] }
    { sub(/#.*/, ""); for (i = 2; i <= NF; i++) if ($i in ours) { print $i " is " $1; exit } }')
  [[ -z $other ]] || die $EXIT_FAILED "/etc/hosts already says that $other: is another cluster up?"
}

# In /tmp anybody can make a folder of this name first, or a link: what it holds would be run and deleted as root.
need_roots_own() { # need_roots_own PATH: it and all above it are root's, and nobody else can put another in their place
  local path=$1 owner mode
  while [[ $path != / ]]; do
    if [[ -e $path || -L $path ]]; then
      read -r owner mode < <(stat --format='%u %a' "$path")
      [[ $owner == 0 ]] || die $EXIT_USAGE "$path belongs to another user (uid $owner): set HPCRUN_CLUSTER_DIR to another folder"
      [[ $path != "$ROOT" || ! -L $path ]] || die $EXIT_USAGE "$path is a link: set HPCRUN_CLUSTER_DIR to a folder"
      [[ -L $path ]] || ((!(8#$mode & 8#022))) || { [[ $path != "$ROOT" ]] && ((8#$mode & 8#1000)); } ||
        die $EXIT_USAGE "others can write to $path (mode $mode): set HPCRUN_CLUSTER_DIR to another folder"
    fi
    path=$(dirname "$path")
  done
}

need_safe_root() { # 'down' deletes this folder, and a Unix socket's path is short
  [[ $ROOT =~ ^/[A-Za-z0-9._/-]{1,60}$ && /$ROOT/ != */../* ]] ||
    die $EXIT_USAGE "HPCRUN_CLUSTER_DIR must be a short absolute path without spaces, not '$ROOT'"
  need_roots_own "$ROOT"
  need_roots_own "$(realpath --canonicalize-missing "$ROOT")"
  [[ ! -e $ROOT || -e $ROOT/made-by-hpcrun || -z $(ls -A "$ROOT") ]] ||
    die $EXIT_USAGE "$ROOT is in use by something else: set HPCRUN_CLUSTER_DIR to a folder of the cluster's own"
}

need_cluster() {
  need_safe_root
  [[ -e $SLURM_CONF ]] || die $EXIT_FAILED "no cluster is up (start one: $SELF up)"
}

need_node() {
  local name
  for name in "${NAMES[@]}"; do [[ $name != "$1" ]] || return 0; done
  wrong_call "no such node: '$1'"
}

install_packages() {
  type slurmctld slurmd slurmdbd sbatch munged mariadbd mariadb-install-db ip >/dev/null 2>&1 && return
  say "installing Debian's slurm, munge and mariadb packages ..."
  export DEBIAN_FRONTEND=noninteractive
  local quietly=(-qq -o Dpkg::Use-Pty=0) log
  log=$(mktemp)
  { # a fresh image has no package lists; apt's chatter is shown only where it failed
    apt-get "${quietly[@]}" update && apt-get "${quietly[@]}" install --yes --no-install-recommends \
      slurmctld slurmd slurmdbd slurm-client munge mariadb-server iproute2
  } >"$log" 2>&1 </dev/null || {
    tail -n 20 "$log" >&2
    die $EXIT_FAILED "apt-get could not install the packages (all of it: $log)"
  }
  rm -f "$log"
}

# --- daemons: every one has its pid in $ROOT/run/NAME.pid --------------------------------------------------------

pid_of() { cat "$ROOT/run/$1.pid" 2>/dev/null; }

# A pid can be reused and a zombie keeps its own, so the process's name and state are looked at too.
is_alive() { # is_alive NAME PID
  local stat
  stat=$(cat "/proc/$2/stat" 2>/dev/null) || return 1
  [[ $stat == "$2 (${1%%-*}) "[!ZX]* ]]
}
is_dead() { ! is_alive "$@"; }

runs() {
  local pid
  pid=$(pid_of "$1") && is_alive "$1" "$pid"
}

stop_daemon() { # returns when it is gone; slurmctld deletes its pid file long before it ends
  local pid i
  pid=$(pid_of "$1") || return 0
  for ((i = 0; i < 100; i++)); do
    is_alive "$1" "$pid" || break
    if ((i == 0)); then kill "$pid" || true; fi
    sleep 0.1
  done
  if is_alive "$1" "$pid"; then kill -KILL "$pid" || true; fi
  wait_for "$1 to end" 10 is_dead "$1" "$pid"
  rm -f "$ROOT/run/$1.pid"
}

# Daemons hold no descriptor of the caller's: one that waits for the end of a pipe would wait for the cluster's.
start_as_host() { # start_as_host HOSTNAME COMMAND...
  # shellcheck disable=SC2016  # the inner shell expands them
  unshare --uts sh -c 'hostname "$0"; exec "$@"' "$@" </dev/null >>"$ROOT/log/start.log" 2>&1 ||
    die $EXIT_FAILED "'${*:2}' on $1 did not start; its log is in $ROOT/log"
}

start_munged() {
  munged --force --key-file="$ROOT/etc/munge.key" --socket="$ROOT/run/munge.socket" --seed-file="$ROOT/run/munge.seed" \
    --pid-file="$ROOT/run/munged.pid" --log-file="$ROOT/log/munged.log" </dev/null >>"$ROOT/log/start.log" 2>&1
  wait_for munged 10 test -S "$ROOT/run/munge.socket"
}

database() { mariadb --no-defaults --socket="$ROOT/db/socket" --user=root --execute="$1"; }

start_mariadb() {
  # Not /tmp: as it starts, a MariaDB removes the temporary tables that it finds, those of another cluster's too.
  local both=(--no-defaults --user=mysql --datadir="$ROOT/db" --tmpdir="$ROOT/db-tmp")
  # slurmdbd complains of smaller values, and newer MariaDBs isolate snapshots, with which a conflict ends it.
  local options=("${both[@]}" --socket="$ROOT/db/socket" --bind-address=127.0.0.1
    --port="$DB_PORT" --innodb-buffer-pool-size=128M --innodb-lock-wait-timeout=900 --loose-innodb-snapshot-isolation=OFF)
  chown mysql "$ROOT/db" "$ROOT/db-tmp"
  mariadb-install-db "${both[@]}" --auth-root-authentication-method=normal --skip-test-db >"$ROOT/log/mariadb.log" 2>&1
  setsid mariadbd "${options[@]}" </dev/null >>"$ROOT/log/mariadb.log" 2>&1 &
  echo $! >"$ROOT/run/mariadbd.pid"
  wait_for mariadbd 30 database 'select 1'
  database "create database slurm_acct; create user slurm@localhost identified by 'slurm';
            grant all on slurm_acct.* to slurm@localhost"
}

start_dbd() {
  with_accounting || die $EXIT_FAILED "this cluster was started with --no-accounting: it has no slurmdbd"
  runs slurmdbd || start_as_host "$LOGIN" slurmdbd
  wait_for slurmdbd 20 sacctmgr --noheader list cluster
}

start_ctld() {
  runs slurmctld || start_as_host "$LOGIN" slurmctld
  wait_for slurmctld 20 ctld_answers
}
ctld_answers() { scontrol ping | grep -q 'is UP'; }

# nsenter and not 'ip netns exec': that one mounts a new /sys, and slurmd finds no cgroup in it.
start_node() {
  runs "slurmd-$1" && return
  start_as_host "$1" nsenter --net="/run/netns/$(cable "$1")" slurmd -N "$1"
}

# A node on which no file can be made below /tmp and /dev/shm; the folders that are in /tmp now stay usable.
# shellcheck disable=SC2016  # the inner shell expands them
FULL='
mount --make-rprivate /
mount --rbind /tmp /mnt
mount -t tmpfs -o mode=1777,nr_inodes=$(($(find /mnt -maxdepth 1 -type d | wc -l) + 1)) tmpfs /tmp
find /mnt -mindepth 1 -maxdepth 1 -type d -exec sh -c "mkdir /tmp/\${1#/mnt/} && mount --rbind \$1 /tmp/\${1#/mnt/}" sh {} \;
i=0; while true 2>/dev/null >/tmp/.full$i; do i=$((i + 1)); done
mount -t tmpfs -o mode=1777,nr_inodes=1 tmpfs /dev/shm
exec slurmd -N "$0"'
# A node with 512 MiB in /mnt that no other node sees.
# shellcheck disable=SC2016  # the shell that it starts expands it
APART='mount --make-rprivate / && mount -t tmpfs -o mode=1777,size=512m tmpfs /mnt && exec slurmd -N "$0"'
restart_with() { # restart_with SCRIPT NODE: in mounts of its own
  stop_daemon "slurmd-$2"
  start_as_host "$2" nsenter --net="/run/netns/$(cable "$2")" unshare --mount sh -eu -c "$1" "$2"
}

# slurmctld does not ask a node again that it has set DOWN; a node that is told to re-read its configuration registers.
plug() {
  ip link set "$(cable "$1")" up
  if runs "slurmd-$1"; then kill -HUP "$(pid_of "slurmd-$1")"; fi
}

# A routing rule drops what comes in, since a kernel may have neither netfilter's tools nor tc's filters. It must stand
# before the rule of the local table, which is the first (preference 0) otherwise. 6 is TCP: its name stands in
# /etc/protocols, which a small Debian lacks (netbase).
block() {
  local ns
  ns=$(cable "$1")
  if is_blocked "$ns"; then return; fi
  ip -n "$ns" rule add pref 2 lookup local
  ip -n "$ns" rule add pref 1 iif eth0 ipproto 6 dport "$RENDEZVOUS_PORTS" blackhole
  ip -n "$ns" rule del pref 0
}
unblock() {
  local ns
  ns=$(cable "$1")
  if ! is_blocked "$ns"; then return; fi
  ip -n "$ns" rule add pref 0 lookup local
  ip -n "$ns" rule del pref 1
  ip -n "$ns" rule del pref 2
}
is_blocked() { [[ $(ip -n "$1" rule show) == *blackhole* ]]; }

# --- configuration ----------------------------------------------------------------------------------------------

kind_in_root() { # ROOT may be anybody's as long as that is not checked: nothing of it is believed but these words
  local kind=
  if [[ -f $ROOT/kind ]]; then kind=$(head -c 20 "$ROOT/kind" 2>/dev/null | tr -d '\0') || true; fi
  case $kind in one-type | limited) echo "$kind" ;; *) echo many ;; esac
}

with_accounting() { grep -qs '^AccountingStorageType=accounting_storage/slurmdbd' "$SLURM_CONF"; }

write_slurm_conf() { # write_slurm_conf yes|no (accounting)
  local i name type gpus
  cat <<CONF
ClusterName=dev
SlurmctldHost=$LOGIN($NETWORK.254)
SlurmctldPort=$CTLD_PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# Slurm holds a requeued job back until its old credential expires: two minutes by default.
AuthInfo=socket=$ROOT/run/munge.socket,cred_expire=5
StateSaveLocation=$ROOT/state
SlurmdSpoolDir=$ROOT/spool/%n
SlurmctldPidFile=$ROOT/run/slurmctld.pid
SlurmdPidFile=$ROOT/run/slurmd-%n.pid
SlurmctldLogFile=$ROOT/log/slurmctld.log
SlurmdLogFile=$ROOT/log/slurmd-%n.log

# The nodes claim more CPUs and memory than the machine has, so nothing may enforce them.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=2000
GresTypes=gpu
MpiDefault=none

# Tests wait for these, so they are short.
SlurmctldTimeout=10
MessageTimeout=10
# Not less than three times that: slurmctld asks all nodes in rounds, and waits so long for one that does not answer. With
# 15 s, one cable that was pulled took other nodes, and their jobs, down.
SlurmdTimeout=30
KillWait=5
MinJobAge=60
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
JobAcctGatherType=jobacct_gather/linux
# For each step that runs, Slurm reads every process of the machine this often: each second, that was a tenth of the CPU
# time of the slurm tests. Slurm's own default.
JobAcctGatherFrequency=30
# A node that answers again is used again, whatever took it down.
ReturnToService=2
# A busy machine may take longer than ten seconds from a job's start to its script; Slurm would take it for lost.
BatchStartTimeout=60

JobRequeue=1
# tests/slurm/test_states.py
RequeueExit=211
MaxArraySize=10001
MaxJobCount=50000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
CONF
  if [[ $1 == yes ]]; then
    cat <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=$NETWORK.254
AccountingStoragePort=$DBD_PORT
# Not a password: where slurmctld's own connection finds munge.
AccountingStoragePass=$ROOT/run/munge.socket
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
AccountingStorageEnforce=associations,limits,qos
CONF
  else
    echo "AccountingStorageType=accounting_storage/none"
  fi
  for i in "${!NODES[@]}"; do
    IFS=: read -r name type gpus <<<"${NODES[$i]}"
    echo "NodeName=$name NodeAddr=$(address "$i") CPUs=64 RealMemory=512000${type:+ Gres=gpu:$type:$gpus} State=UNKNOWN"
  done
  echo "PartitionName=DEFAULT PriorityTier=10 PreemptMode=OFF State=UP"
  write_partitions
}

write_partitions() {
  case $KIND in
    many)
      cat <<CONF
PartitionName=gpu Nodes=a100-[1-2],h100-[1-2],v100-[1-2],l40s-[1-2],h200-1,a40-1 Default=YES MaxTime=2-00:00:00 DefaultTime=00:30:00
PartitionName=h100 Nodes=h100-[1-2] MaxTime=12:00:00
PartitionName=preempt Nodes=a100-[1-2],h100-[1-2] MaxTime=1-00:00:00 PriorityTier=1 PreemptMode=REQUEUE GraceTime=10
PartitionName=cpu Nodes=cpu-1 MaxTime=4-00:00:00
PartitionName=debug Nodes=a100-1 MaxTime=00:10:00
CONF
      ;;
    one-type)
      cat <<CONF
PartitionName=gpu Nodes=a100-[1-2] Default=YES MaxTime=2-00:00:00 DefaultTime=00:30:00
PartitionName=cpu Nodes=cpu-1 MaxTime=4-00:00:00
CONF
      ;;
    limited)
      cat <<CONF
PartitionName=accel Nodes=a100-[1-2] MaxTime=1-00:00:00 AllowAccounts=lab,thesis AllowQos=normal,short
PartitionName=owners Nodes=a100-[1-2] MaxTime=7-00:00:00 AllowAccounts=owners
PartitionName=serial Nodes=cpu-1 MaxTime=4-00:00:00
CONF
      ;;
  esac
}

write_gres_conf() {
  local node name type gpus
  for node in "${NODES[@]}"; do
    IFS=: read -r name type gpus <<<"$node"
    [[ -z $type ]] || echo "NodeName=$name Name=gpu Type=$type File=$ROOT/dev/nvidia[0-$((gpus - 1))]"
  done
}

write_slurmdbd_conf() {
  cat <<CONF
AuthType=auth/munge
AuthInfo=socket=$ROOT/run/munge.socket
DbdHost=$LOGIN
DbdAddr=$NETWORK.254
DbdPort=$DBD_PORT
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$DB_PORT
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
LogFile=$ROOT/log/slurmdbd.log
PidFile=$ROOT/run/slurmdbd.pid
CONF
}

make_root() {
  mkdir -p "$ROOT"
  need_safe_root # another may have been quicker
  touch "$ROOT/made-by-hpcrun"
  echo "$KIND" >"$ROOT/kind"
  mkdir "$ROOT"/{etc,state,log,spool,run,dev,db,db-tmp}
}

configure() { # configure yes|no (accounting)
  local i
  # Slurm sets CUDA_VISIBLE_DEVICES only for character devices; /dev/null's number harms no real GPU.
  for i in {0..7}; do mknod "$ROOT/dev/nvidia$i" c 1 3; done
  (umask 077 && head -c 1024 /dev/urandom >"$ROOT/etc/munge.key")
  write_slurm_conf "$1" >"$SLURM_CONF"
  write_gres_conf >"$ROOT/etc/gres.conf"
  (umask 077 && write_slurmdbd_conf >"$ROOT/etc/slurmdbd.conf") # slurmdbd refuses one that others can read
}

add_researcher() {
  mkdir -p "$USERS"
  (
    flock 9
    touch "$USERS/${ROOT//\//,}"
    if id "$RESEARCHER" >/dev/null 2>&1; then exit; fi
    touch "$USERS/made" # before the user, so that a 'down' after Ctrl-C knows whose it is
    useradd --create-home --user-group --shell /bin/bash "$RESEARCHER"
  ) 9<"$USERS"
}

account() { sacctmgr --immediate "$@" >>"$ROOT/log/start.log"; }

add_accounts() {
  local user name
  account add account lab
  # Slurm refuses a limit on gres/gpu until slurmctld has registered that resource.
  wait_for "slurmctld to register gres/gpu" 20 gres_registered
  account modify qos short set MaxWall=00:10:00 MaxTRESPerUser=gres/gpu=4
  for user in root "$RESEARCHER"; do account add user "$user" account=lab qos=normal,short; done
  [[ $KIND == limited ]] || return 0
  for name in thesis owners; do account add account "$name"; done
  account add user "$RESEARCHER" account=thesis qos=normal,short
  account modify qos normal set MaxWall=04:00:00 MaxTRESPerUser=gres/gpu=4 Flags=DenyOnLimit
}
gres_registered() { sacctmgr --noheader --parsable2 list tres format=type,name | grep -qx 'gres|gpu'; }

# --- network ----------------------------------------------------------------------------------------------------

address() { echo "$NETWORK.$(($1 + 1))"; } # of the node at this place in NODES
cable() { echo "hpcrun-$1"; }              # a node's namespace, and this machine's end of its cable

connect_nodes() {
  local i ns
  ip link add "$BRIDGE" type bridge
  ip addr add "$NETWORK.254/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  for i in "${!NAMES[@]}"; do
    ns=$(cable "${NAMES[$i]}")
    ip netns add "$ns"
    ip link add "$ns" type veth peer name eth0 netns "$ns"
    ip link set "$ns" master "$BRIDGE" up
    ip -n "$ns" addr add "$(address "$i")/24" dev eth0
    ip -n "$ns" link set eth0 up
    ip -n "$ns" link set lo up
  done
}

disconnect_nodes() {
  local name ns
  for name in "${NAMES[@]}"; do
    ns=$(cable "$name")
    [[ -e /run/netns/$ns ]] || continue
    ip netns del "$ns"
    ip link del "$ns" 2>/dev/null || true # usually gone with the namespace
  done
  if ip link show "$BRIDGE" >/dev/null 2>&1; then ip link del "$BRIDGE"; fi
}

hosts_of_others() { grep -v "$HOSTS_MARK\$" /etc/hosts || true; }

# Written in place: in a container /etc/hosts is a mount and cannot be replaced.
write_hosts() { # write_hosts LINE...
  local others
  others=$(hosts_of_others)
  printf '%s\n' "$others" "$@" >/etc/hosts
}

name_nodes() {
  local i lines=("$NETWORK.254 $LOGIN $HOSTS_MARK")
  for i in "${!NAMES[@]}"; do lines+=("$(address "$i") ${NAMES[$i]} $HOSTS_MARK"); done
  write_hosts "${lines[@]}"
}

unname_nodes() { if grep -q "$HOSTS_MARK\$" /etc/hosts; then write_hosts; fi; }

# --- commands ---------------------------------------------------------------------------------------------------

is_up() { [[ -e $ROOT/complete ]] && runs slurmctld; }

all_idle() { [[ $(sinfo --noheader --Node --format='%N %t' | sort -u | grep -c ' idle$') == "${#NODES[@]}" ]]; }

up() { # up yes|no (accounting) KIND
  local name
  need_capable_machine
  need_safe_root
  if is_up; then
    [[ $1 == "$(with_accounting && echo yes || echo no)" ]] ||
      die $EXIT_FAILED "a cluster is up, and its accounting is the other way: '$SELF down' first"
    [[ $2 == "$KIND" ]] || die $EXIT_FAILED "a cluster is up, and its kind is $KIND: '$SELF down' first"
    say "already up: eval \"\$($SELF env)\""
    return
  fi
  if [[ -e $ROOT/made-by-hpcrun ]]; then
    say "clearing away a cluster that is only half up ..."
    down
  fi
  choose "$2"
  need_names_free
  make_root
  install_packages
  add_researcher
  configure "$1"
  connect_nodes
  name_nodes
  start_munged
  if [[ $1 == yes ]]; then
    start_mariadb
    start_dbd
    account add cluster dev
    account add qos short # slurmctld 26.05 does not start with a partition for a QOS that it does not know
  fi
  start_ctld
  if [[ $1 == yes ]]; then add_accounts; fi
  for name in "${NAMES[@]}"; do start_node "$name"; done
  wait_for "every node to be idle" 40 all_idle
  touch "$ROOT/complete"
  say "up: ${#NODES[@]} nodes. Point Slurm's commands at it: eval \"\$($SELF env)\""
}

# With a node's slurmd end its jobs, which outlive the daemon.
kill_nodes() {
  local name
  for name in "${NAMES[@]}"; do
    [[ -e /run/netns/$(cable "$name") ]] || continue
    wait_for "the processes of $name to end" 10 kill_node "$name"
  done
}
kill_node() { # true once nothing is left to kill
  local pids
  pids=$(ip netns pids "$(cable "$1")")
  [[ -n $pids ]] || return 0
  # shellcheck disable=SC2086  # a list of pids
  kill -KILL $pids 2>/dev/null
  return 1
}

remove_researcher() { # the last cluster to go removes the user that one of them has made
  [[ -e $USERS ]] || return 0
  (
    flock 9
    rm -f "$USERS/${ROOT//\//,}"
    if used_by_others || [[ ! -e $USERS/made ]]; then exit; fi
    if id "$RESEARCHER" >/dev/null 2>&1; then delete_researcher; fi
    rm -f "$USERS/made"
  ) 9<"$USERS"
}
used_by_others() {
  local name root
  for name in "$USERS"/,*; do
    root=${name##*/}
    if [[ -e ${root//,//}/complete ]]; then return 0; fi
  done
  return 1
}
delete_researcher() {
  local owner process
  while read -r owner process; do # userdel refuses while the user runs anything
    if [[ $owner == "$RESEARCHER" ]]; then kill -KILL "${process#/proc/}" 2>/dev/null || true; fi
  done < <(stat --format='%U %n' /proc/[0-9]* 2>/dev/null)
  local answer
  answer=$(userdel --remove "$RESEARCHER" 2>&1) || die $EXIT_FAILED "${answer##*$'\n'}"
}

# The tests show the checkout to the researcher through a mount in here. Deleting must not reach through it.
unmount_all() {
  local mounts
  mounts=$(awk -v root="$ROOT/" 'index($5, root) == 1 { print $5 }' /proc/self/mountinfo)
  [[ -z $mounts ]] || xargs --delimiter='\n' umount <<<"$mounts"
}

down() {
  local daemon
  need_root
  need_safe_root
  kill_nodes
  for daemon in slurmctld slurmdbd mariadbd munged; do stop_daemon "$daemon"; done
  disconnect_nodes
  unname_nodes
  remove_researcher
  unmount_all
  rm -rf "$ROOT"
  say "down"
}

show_status() {
  need_safe_root
  is_up || die $EXIT_FAILED "no cluster is up (start one: $SELF up)"
  sinfo
  squeue
}

show_env() {
  need_cluster
  echo "export SLURM_CONF=$SLURM_CONF"
}

fault() { # fault VERB WHAT
  case "$1 $2" in
    "stop ctld" | "stop dbd" | "start ctld" | "start dbd") ;;
    *) need_node "$2" ;;
  esac
  need_root
  need_cluster
  case "$1 $2" in
    "start ctld") start_ctld ;;
    "start dbd") start_dbd ;;
    "stop ctld" | "stop dbd") stop_daemon "slurm$2" ;;
    stop*) stop_daemon "slurmd-$2" ;;
    start*) start_node "$2" ;;
    full*) restart_with "$FULL" "$2" ;;
    apart*) restart_with "$APART" "$2" ;;
    unplug*) ip link set "$(cable "$2")" down ;;
    plug*) plug "$2" ;;
    block*) block "$2" ;;
    unblock*) unblock "$2" ;;
  esac
}

main() {
  CALL=("$@") # for the hint of need_root
  choose "$(kind_in_root)"
  case "$*" in
    up) up yes many ;;
    "up --no-accounting") up no many ;;
    "up --as many" | "up --as one-type" | "up --as limited") up yes "$3" ;;
    "up --as "*) choose "${*:3}" ;;
    down) down ;;
    check) need_capable_machine ;;
    install) need_capable_machine && install_packages ;;
    status) show_status ;;
    env) show_env ;;
    "full "* | "apart "* | "stop "* | "start "* | "unplug "* | "plug "* | "block "* | "unblock "*) fault "$1" "${*:2}" ;;
    help | -h | --help) usage ;;
    "") wrong_call "no command" ;;
    *) wrong_call "not a command: '$*'" ;;
  esac
}

main "$@"

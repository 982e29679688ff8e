#!/usr/bin/env bash
# Slurm on this host alone, for tests: Debian's controller, node daemon and munge, with GPUs that are only files.
#   slurm.sh install         install the packages (root)
#   slurm.sh start FOLDER    configure and start; prints what to set in the environment
#   slurm.sh stop FOLDER     end what start has started
set -euo pipefail

install_slurm() {
  command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null && return
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq slurmctld slurmd slurm-client munge >/dev/null
}

start_slurm() {
  local home=$1 host gpu port
  host=$(hostname -s)
  port=$((20000 + RANDOM % 10000))
  mkdir -p "$home"/{state,spool,munge}
  chmod 755 "$home"
  chmod 700 "$home/munge"
  # A key and a socket of its own, so that a munge that runs here already is left alone.
  head -c 1024 /dev/urandom >"$home/munge/key"
  chmod 600 "$home/munge/key"
  munged --force --num-threads=2 --key-file="$home/munge/key" --socket="$home/munge.socket" \
    --pid-file="$home/munge/pid" --log-file="$home/munge/log" --seed-file="$home/munge/seed"
  for gpu in 0 1; do mknod "$home/gpu$gpu" c 1 3 2>/dev/null || : >"$home/gpu$gpu"; done
  cat >"$home/gres.conf" <<END
NodeName=$host Name=gpu File=$home/gpu[0-1]
END
  # Slurm before 23.02 cannot do without a plugin; nothing here is confined by it.
  if [ -d /sys/fs/cgroup/freezer ]; then echo CgroupPlugin=cgroup/v1; else echo CgroupPlugin=disabled; fi >"$home/cgroup.conf"
  cat >"$home/slurm.conf" <<END
ClusterName=tests
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$home/munge.socket
CredType=cred/munge
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
SlurmdTimeout=60
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 RealMemory=64000 Gres=gpu:2 State=UNKNOWN
PartitionName=tests Nodes=$host Default=YES MaxTime=120 State=UP
END
  export SLURM_CONF=$home/slurm.conf
  slurmctld -c
  slurmd -c
  for _ in $(seq 100); do
    if [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ]; then
      echo "SLURM_CONF=$SLURM_CONF"
      return
    fi
    sleep 0.2
  done
  tail -n 20 "$home"/slurmctld.log "$home"/slurmd.log >&2
  stop_slurm "$home"
  return 1
}

stop_slurm() {
  local home=$1 file pid
  for file in slurmd.pid slurmctld.pid munge/pid; do
    [ -s "$home/$file" ] || continue
    pid=$(cat "$home/$file")
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 50); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.2
    done
  done
}

case ${1:-} in
  install) install_slurm ;;
  start) start_slurm "$2" ;;
  stop) stop_slurm "$2" ;;
  *)
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
    ;;
esac

# shellcheck shell=bash
# Shared by up.sh and down.sh; sourced, not run. The environment may replace the defaults.

KUBERNETES=v1.36.3
CACHE=${KPCLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kpcluster}
BIN=$CACHE/kubernetes-$KUBERNETES
DIR=${KPCLUSTER_DIR:-/tmp/kpcluster} # short, because the path of a unix socket has at most 107 bytes
NETNS=${KPCLUSTER_NETNS:-kpcluster}  # all processes of the bed are in this network namespace
NODE=node1
NODE_IP=172.31.98.1 # the address of a bridge without ports
SERVICES=10.96.0.0/16 DNS_IP=10.96.0.10
SERVER=https://$NODE_IP:6443
PKI=$DIR/pki

say() { echo "${0##*/}: $*" >&2; }
inside() { nsenter "--net=/run/netns/$NETNS" "$@"; }

# ours NAME prints the process ID of a running daemon of the bed. Each daemon has DIR in its
# arguments, so a process that has reused the ID of an exited daemon does not match.
ours() {
	local pid
	[ -s "$DIR/$1.pid" ] || return 1
	pid=$(cat "$DIR/$1.pid")
	grep -qsaF -- "$DIR/" "/proc/$pid/cmdline" && echo "$pid"
}

# shellcheck shell=bash
# Shared by the scripts of this folder; sourced, not run. They set the variable here to the path of
# the folder. The environment may replace the defaults.

# The versions of Kubernetes and of its dependencies are those of the comparison with the kubelet.
PEER=$(sed -n 's#^\s*k8s.io/kubernetes \(v[0-9.]*\)$#\1#p' "${here:?}/../peer/go.mod")
KUBERNETES=$PEER
CACHE=${KPCLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kpcluster}
BIN=$CACHE/kubernetes-$KUBERNETES
CONTROL_PLANE=${KPCLUSTER_CONTROL_PLANE:-$KUBERNETES} # the version of API server, controllers and scheduler
DIR=${KPCLUSTER_DIR:-/tmp/kpcluster} # short, because the path of a unix socket has at most 107 bytes
NETNS=${KPCLUSTER_NETNS:-kpcluster}  # the network namespace of all processes of the bed; the cgroups of the pods have the same name
NODE=node1
NODE_IP=172.31.98.1 # the address of a bridge without ports
SERVICES=10.96.0.0/16 DNS_IP=10.96.0.10
SERVER=https://$NODE_IP:6443
PKI=$DIR/pki

say() { echo "${0##*/}: $*" >&2; }
inside() { nsenter "--net=/run/netns/$NETNS" "$@"; }

# program NAME PACKAGE [TAGS] builds a program of the version KUBERNETES into BIN, once for each version. The program
# e2e.test is the test of its package. The flags of the compiler are the defaults, so that packages
# which the comparison with the kubelet has compiled are not compiled again.
program() {
	local v=k8s.io/component-base/version minor=${KUBERNETES#v1.} build=(go build)
	[ ! -x "$BIN/$1" ] || return 0
	say "building $1 $KUBERNETES (minutes, once)"
	mkdir -p "$BIN" "$CACHE/module"
	[ "$1" != e2e.test ] || build=(go test -c -vet=off)
	(
		cd "$CACHE/module"
		sed "s/ $PEER\$/ $KUBERNETES/; s/ ${PEER/v1/v0}\$/ ${KUBERNETES/v1/v0}/" "$here/../peer/go.mod" >go.mod
		cp "$here/../peer/go.sum" .
		go mod edit -module example.com/programs -droprequire github.com/kubeparts/kubeparts -dropreplace github.com/kubeparts/kubeparts
		export CGO_ENABLED=0 GOFLAGS=-mod=mod # adds what go.mod and go.sum lack
		"${build[@]}" -tags "${3:-}" -ldflags "-s -w -X $v.gitVersion=$KUBERNETES -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*}" -o "$BIN/$1.new" "$2"
	)
	mv "$BIN/$1.new" "$BIN/$1"
}

# start NAME WORD... starts a daemon in the namespace.
start() {
	local name=$1
	shift
	ours "$name" >/dev/null && return
	setsid nsenter "--net=/run/netns/$NETNS" "$@" </dev/null >>"$DIR/log/$name.log" 2>&1 &
	echo $! >"$DIR/$name.pid"
}

# ours NAME prints the process ID of a running daemon of the bed. Each daemon has DIR in its
# arguments, so a process that has reused the ID of an exited daemon does not match.
ours() {
	local pid
	[ -s "$DIR/$1.pid" ] || return 1
	pid=$(cat "$DIR/$1.pid")
	grep -qsaF -- "$DIR/" "/proc/$pid/cmdline" && echo "$pid"
}

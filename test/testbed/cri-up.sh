#!/bin/bash
# Starts a real CRI runtime (containerd, runc, a CNI bridge) with its own directory,
# socket, pod network, images and registry. Needs root, Debian's packages, Go and the
# Go module proxy, but no container engine and no external image. Can be run again: it
# does not change a bed that is running. If only containerd has exited, it starts
# containerd again with the same state, including the pods.
#
#   cri-up.sh [--dir DIR] [--containerd 2.4|1.7|1.6] [--bridge kpbed0] [--cidr 10.88.0.0/16]
#             [--snapshotter overlayfs|native] [--cache DIR] [--prepare]
#
# Two concurrent beds need different bridges and ranges. A bed keeps its containerd, bridge
# and range. --prepare only fills the cache. Prints NAME=VALUE lines, among them CRI_SOCKET,
# which are also in DIR/env. cri-down.sh DIR removes the bed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

CONTAINERD=2.4 RUNC=v1.3.6
DIR='' BRIDGE=kpbed0 CIDR=10.88.0.0/16 SNAPSHOTTER=overlayfs PREPARE=''
CACHE=${KPBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kpbed}
CNIBIN=/usr/lib/cni # where Debian's containernetworking-plugins are

options() {
	while [ $# -gt 0 ]; do
		case $1 in
		--prepare) PREPARE=1 && shift && continue ;;
		--dir | --containerd | --bridge | --cidr | --snapshotter | --cache) ;;
		*) say "unknown option $1" && exit 2 ;;
		esac
		[ $# -gt 1 ] || { say "$1 needs a value" && exit 2; }
		case $1 in
		--dir) DIR=$2 ;;
		--containerd) CONTAINERD=$2 ;;
		--bridge) BRIDGE=$2 ;;
		--cidr) CIDR=$2 ;;
		--snapshotter) SNAPSHOTTER=$2 ;;
		--cache) CACHE=$2 ;;
		esac
		shift 2
	done
	# shellcheck source=/dev/null
	[ -z "$DIR" ] || [ ! -e "$DIR/bed" ] || . "$DIR/bed"
	case $CONTAINERD in
	2.4) CBIN=containerd-v2.4.2 ;;
	1.7) CBIN=containerd-v1.7.31 ;;
	1.6) CBIN=containerd-debian ;;
	*) say "unknown containerd $CONTAINERD: 2.4, 1.7 or 1.6" && exit 2 ;;
	esac
	CBIN=$CACHE/$CBIN
	[ "$(id -u)" = 0 ] || { say "needs root" && exit 1; }
	command -v go >/dev/null || { say "needs go in PATH" && exit 1; }
}

# packages installs the Debian packages that are missing.
packages() {
	local p missing=()
	for p in busybox-static containernetworking-plugins gcc iproute2 iptables libc6-dev libseccomp-dev pkgconf procps runc; do
		dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	local install=(apt-get install -y -qq --no-install-recommends "${missing[@]}")
	# The package lists may be old or missing, so update them and try again after a failure.
	"${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}" >/dev/null; }
}

# get_containerd puts the programs of the bed's containerd into the cache. Debian's package of
# 1.6 is unpacked and not installed: nothing else on the machine changes or starts.
get_containerd() {
	local m=github.com/containerd/containerd new=$CBIN.new v=${CBIN##*-}
	local install=(go install -trimpath -ldflags='-s -w' -tags 'no_btrfs no_zfs no_devmapper no_aufs no_blockfile no_tracing')
	rm -rf "$new"
	mkdir "$new"
	case $CONTAINERD in
	2.4)
		m=$m/v2/cmd
		GOBIN=$new "${install[@]}" "$m/containerd@$v" "$m/containerd-shim-runc-v2@$v" "$m/ctr@$v"
		;;
	1.7)
		# Its go.mod has an exclude, with which go install refuses a module that is not the main one.
		go mod download "$m@$v"
		cd "$(go env GOMODCACHE)/$m@$v"
		GOBIN=$new "${install[@]}" ./cmd/containerd ./cmd/containerd-shim-runc-v2 ./cmd/ctr
		cd "$OLDPWD"
		;;
	1.6)
		cd "$new"
		apt-get download -qq containerd 2>/dev/null || { apt-get update -qq && apt-get download -qq containerd; }
		dpkg-deb --fsys-tarfile containerd_*.deb | tar -x --strip-components=3 ./usr/bin
		rm containerd_*.deb
		cd "$OLDPWD"
		;;
	esac
	mv "$new" "$CBIN"
}

# programs fills the cache: each version of containerd once, a runc with more features
# than Debian's, and the bed's own programs and images after each change of them.
programs() {
	export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
	if [ ! -x "$CBIN/ctr" ]; then
		say "getting containerd $CONTAINERD (minutes, once)"
		get_containerd
	fi
	RUNCNEW=$CACHE/runc-$RUNC
	if [ ! -x "$RUNCNEW/runc" ]; then
		say "building runc $RUNC (a minute, once)"
		rm -rf "$RUNCNEW.new"
		CGO_ENABLED=1 GOBIN=$RUNCNEW.new go install -trimpath -tags seccomp -ldflags='-s -w' "github.com/opencontainers/runc@$RUNC"
		mv "$RUNCNEW.new" "$RUNCNEW"
	fi
	local key
	key=$(cd "$here/images" && cat build.sh go.mod go.sum ./*/*.go /bin/busybox | sha256sum | cut -c1-16)
	BED=$CACHE/bed-$key
	if [ ! -d "$BED" ]; then
		say "building the bed's programs and images"
		rm -rf "$BED.new"
		"$here/images/build.sh" "$BED.new"
		mv "$BED.new" "$BED"
	fi
}

# directory creates DIR, and first records what cri-down.sh needs, so that cri-down.sh can
# clean up after a crash at any later time.
directory() {
	if [ -z "$DIR" ] || [ ! -e "$DIR/bed" ]; then
		! ip link show "$BRIDGE" >/dev/null 2>&1 ||
			{ say "bridge $BRIDGE already exists, perhaps of another bed; set --bridge and --cidr" && exit 1; }
	fi
	[ -n "$DIR" ] || DIR=$(mktemp -d /tmp/kpbed.XXXXXX)
	mkdir -p "$DIR"
	DIR=$(cd "$DIR" && pwd -P)
	# The path of a unix socket has at most 107 bytes. The socket of a shim is
	# DIR/s/ and 64 digits.
	[ ${#DIR} -le 36 ] || { say "longer than 36 characters: $DIR" && exit 1; }
	SOCK=$DIR/containerd.sock
	if [ ! -e "$DIR/bed" ]; then
		# The CNI result cache is outside of DIR and shared by all beds, by
		# network name.
		NET=kpbed-$(printf %s "$DIR" | sha256sum | cut -c1-8)
		printf '%s=%q\n' CONTAINERD "$CONTAINERD" BRIDGE "$BRIDGE" CIDR "$CIDR" NET "$NET" BED "$BED" >"$DIR/bed"
	fi
	# A bed keeps its first network and its first programs.
	# shellcheck source=/dev/null
	. "$DIR/bed"
	chmod 711 "$DIR" # so that containers of any user can traverse it
	mkdir -p "$DIR"/{root,state,opt,nri,s,log,cni/net.d,cni/ipam,certs.d/_default}
}

up() { ours "$DIR/containerd.pid" "$DIR/config.toml" >/dev/null && [ -e "$DIR/env" ] && timeout 10 "$BED/bin/criprobe" -e "$SOCK" wait; }

# configuration writes the configuration of containerd. The reasons for unusual settings:
# - Every containerd 2.x reads version 3, and 1.6 and 1.7 read version 2. With
#   imports = [], containerd reads no files outside of DIR.
# - restrict_oom_score_adj: root may lack CAP_SYS_RESOURCE, as in a container. The kernel
#   then does not permit lowering oom_score_adj, and sandboxes request -998: every
#   RunPodSandbox would fail with "can't get final child's PID from pipe: EOF". With this
#   setting, containerd raises lower values to its own value.
# - netns_mounts_under_state_dir, shim socket_dir and runc's Root: by default, all
#   containerds of a machine share these folders. 1.x has no socket_dir: cri-down.sh
#   removes the sockets.
# - stats_collect_period: in seconds; the default of 10 is long for a test.
configuration() {
	if [ "$CONTAINERD" = 2.4 ]; then
		common 3
		plugins_of_version_3
		runtimes io.containerd.cri.v1.runtime
	else
		common 2
		plugins_of_version_2
		runtimes io.containerd.grpc.v1.cri
	fi >"$DIR/config.toml"
	cni
}

common() {
	cat <<C
version = $1
root = "$DIR/root"
state = "$DIR/state"
imports = []
[grpc]
  address = "$SOCK"
[debug]
  level = "info"
[plugins."io.containerd.internal.v1.opt"]
  path = "$DIR/opt"
[plugins."io.containerd.nri.v1.nri"]
  socket_path = "$DIR/nri/nri.sock"
  plugin_path = "$DIR/nri/plugins"
  plugin_config_path = "$DIR/nri/conf.d"
C
}

plugins_of_version_3() {
	cat <<C
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = "$DIR/s"
[plugins."io.containerd.image-verifier.v1.bindir"]
  bin_dir = "$DIR/opt/image-verifier"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "$SNAPSHOTTER"
  stats_collect_period = 1
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "kubeparts.test/pause:1"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "$DIR/certs.d"
[plugins."io.containerd.cri.v1.runtime"]
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["$CNIBIN"]
    conf_dir = "$DIR/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
C
}

plugins_of_version_2() {
	cat <<C
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "kubeparts.test/pause:1"
  stats_collect_period = 1
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$DIR/certs.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$CNIBIN"
    conf_dir = "$DIR/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$SNAPSHOTTER"
    default_runtime_name = "runc"
C
}

# runtimes names the runtime handlers in the configuration of the plugin. Kubernetes' own specs require
# a handler with the name test-handler.
runtimes() {
	local handler binary root
	while read -r handler binary root; do
		cat <<C
    [plugins."$1".containerd.runtimes.$handler]
      runtime_type = "io.containerd.runc.v2"
      [plugins."$1".containerd.runtimes.$handler.options]
        BinaryName = "$binary"
        Root = "$DIR/state/$root"
        SystemdCgroup = false
C
	done <<C
runc $(command -v runc) runc
newer $RUNCNEW/runc runc-newer
test-handler $(command -v runc) runc-test
C
}

cni() {
	# Debian's plugins are of version 1.1 and do not support a later cniVersion. Without
	# masquerading and a default route, pods reach only each other and the host. Each
	# address of the host has a route, because it is the source address of a client of a
	# host port.
	local routes
	routes=$(ip -4 -o addr show scope global | awk '{sub("/.*", "", $4); printf "%s{\"dst\": \"%s/32\"}", sep, $4; sep = ", "}')
	cat >"$DIR/cni/net.d/10-kpbed.conflist" <<C
{
  "cniVersion": "1.0.0",
  "name": "$NET",
  "plugins": [
    {"type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "ipMasq": false, "hairpinMode": true,
     "ipam": {"type": "host-local", "dataDir": "$DIR/cni/ipam", "ranges": [[{"subnet": "$CIDR"}]], "routes": [$routes]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
C
}

network() {
	# The bridge plugin enables forwarding; cri-down.sh restores the old value.
	[ -e "$DIR/ip_forward" ] || cat /proc/sys/net/ipv4/ip_forward >"$DIR/ip_forward"
	# The portmap plugin does not remove the chains that all networks share.
	[ -e "$DIR/chains" ] || { iptables -w -t nat -S 2>/dev/null | grep -- '^-N CNI-HOSTPORT-' >"$DIR/chains" || true; }
	# Without this route, packets for a removed pod would leave by the default route when
	# the bridge was removed too.
	ip route replace unreachable "$CIDR" metric 4000000
}

start_containerd() {
	rm -f "$SOCK" "$SOCK.ttrpc"
	# containerd finds the shim in PATH. With setsid, containerd survives our terminal.
	PATH=$CBIN:$PATH setsid "$CBIN/containerd" -c "$DIR/config.toml" </dev/null >>"$DIR/log/containerd.log" 2>&1 &
	echo $! >"$DIR/containerd.pid"
	"$BED/bin/criprobe" -e "$SOCK" wait || { tail -20 "$DIR/log/containerd.log" >&2 && exit 1; }
}

import_images() {
	local tar
	[ ! -e "$DIR/imported" ] || return 0
	for tar in "$BED"/images/*.tar; do
		"$CBIN/ctr" -a "$SOCK" -n k8s.io images import "$tar" >>"$DIR/log/import.log" 2>&1 ||
			{ tail -5 "$DIR/log/import.log" >&2 && exit 1; }
	done
	touch "$DIR/imported"
}

# registry serves all images; the images in images/pull are only in the registry.
# Containerd sends every pull to this registry, because it sends a pull from an unknown
# host to the server of _default. So no pull leaves the machine.
registry() {
	if ! ours "$DIR/registry.pid" "$DIR/registry.addr" >/dev/null; then
		rm -f "$DIR/registry.addr"
		setsid "$BED/bin/registry" -dir "$BED/images" -addr-file "$DIR/registry.addr" \
			-lock locked=kube:parts </dev/null >>"$DIR/log/registry.log" 2>&1 &
		echo $! >"$DIR/registry.pid"
		for _ in $(seq 600); do [ -s "$DIR/registry.addr" ] && break; sleep 0.05; done
		[ -s "$DIR/registry.addr" ] || { say "the registry did not start within 30 s" && tail -5 "$DIR/log/registry.log" >&2 && exit 1; }
	fi
	REGISTRY=$(cat "$DIR/registry.addr")
	printf 'server = "http://%s"\n[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' \
		"$REGISTRY" "$REGISTRY" >"$DIR/certs.d/_default/hosts.toml"
}

environment() {
	printf '%s=%s\n' KPBED_DIR "$DIR" KPBED_CONTAINERD "$CONTAINERD" KPBED_BRIDGE "$BRIDGE" KPBED_CIDR "$CIDR" KPBED_REGISTRY "$REGISTRY" \
		KPBED_PROBE "$BED/bin/criprobe" KPBED_CTR "$CBIN/ctr" KPBED_PID "$(cat "$DIR/containerd.pid")" \
		CRI_SOCKET "$SOCK" >"$DIR/env.new"
	mv "$DIR/env.new" "$DIR/env"
}

options "$@"
# Only one script at a time: apt, the cache and the search for a free bridge are shared.
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9
packages
programs
[ -z "$PREPARE" ] || { say "cache ready: $CACHE" && echo "KPBED_BIN=$BED/bin" && exit 0; }
directory
exec 9>&- # otherwise containerd would inherit and hold the lock
if up; then
	say "already up"
else
	configuration
	network
	start_containerd
	import_images
	registry
	environment
fi
cat "$DIR/env"

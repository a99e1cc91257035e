#!/bin/bash
# Prepares the bed for the real kubelet: builds it, and creates the cgroups below which it puts those of
# its pods. The kubelet does not create them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9
program kubelet k8s.io/kubernetes/cmd/kubelet selinux,notest,grpcnotrace # the tags of Kubernetes' releases
exec 9>&-
mkdir -p "$DIR/kubelet"
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*/; do
	[ ! -e "$hierarchy/cgroup.procs" ] || mkdir -p "$hierarchy/$NETNS"
done
cpusets=/sys/fs/cgroup/cpuset
[ ! -e "$cpusets/$NETNS" ] || for file in cpuset.cpus cpuset.mems; do cat "$cpusets/$file" >"$cpusets/$NETNS/$file"; done

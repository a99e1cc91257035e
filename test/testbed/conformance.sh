#!/bin/bash
# Runs make conformance-cri on a separate bed, and removes the bed, even if checks fail.
#
#   conformance.sh 2.4|1.7|1.6      the version of containerd
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=/tmp/kpbed-conf # always the same, so that the next run removes what a killed run has left

"$here/cri-down.sh" --purge "$dir"
trap '"$here/cri-down.sh" --purge "$dir"' EXIT
"$here/cri-up.sh" --dir "$dir" --containerd "${1:?usage: conformance.sh 2.4|1.7|1.6}" --bridge kpbedconf0 --cidr 10.87.0.0/16 >/dev/null
make -C "$here/../.." --no-print-directory conformance-cri SOCKET="$dir/containerd.sock" CGROUP_PARENT=/kpbed/conformance \
	IMAGE=kubeparts.test/busybox:1 PULL_IMAGE=kubeparts.test/pulled:1 MISSING_IMAGE=kubeparts.test/missing:1

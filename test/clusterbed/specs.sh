#!/bin/bash
# Prepares a running bed for Kubernetes' own specs: builds their programs e2e.test and ginkgo, imports
# their images into the runtime, and starts a registry that has these images.
#
#   specs.sh [--prepare]      --prepare only fills the cache
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9
program e2e.test k8s.io/kubernetes/test/e2e
program ginkgo github.com/onsi/ginkgo/v2/ginkgo
images=$("$here/images.sh")
exec 9>&-
[ "${1:-}" != --prepare ] || { say "cache ready: $CACHE" && exit 0; }

# shellcheck source=/dev/null
. "$DIR/cri/env"
# shellcheck source=/dev/null
. "$DIR/cri/bed"
for tar in "$images"/*.tar; do "$KPBED_CTR" -a "$CRI_SOCKET" -n k8s.io images import "$tar" >>"$DIR/log/import.log"; done

# A pull from registry.k8s.io is sent to this registry. A spec starts the registry at localhost:5000.
ours registry >/dev/null || rm -f "$DIR/registry.addr"
start registry "$BED/bin/registry" -dir "$images" -addr-file "$DIR/registry.addr"
for _ in $(seq 300); do [ -s "$DIR/registry.addr" ] && break; sleep 0.1; done
registry=$(cat "$DIR/registry.addr")
for host in "registry.k8s.io $registry" "localhost:5000 localhost:5000"; do
	mkdir -p "$DIR/cri/certs.d/${host% *}"
	printf 'server = "http://%s"\n[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' "${host#* }" "${host#* }" >"$DIR/cri/certs.d/${host% *}/hosts.toml"
done

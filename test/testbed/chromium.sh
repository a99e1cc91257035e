#!/bin/bash
# chromium.sh prints the path of a Chromium, which it installs if there is none: Debian's
# package, which takes root. For the test of the status page.
set -euo pipefail

for name in "${CHROMIUM:-chromium}" chromium-browser google-chrome; do
	command -v "$name" && exit
done
install=(apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core)
export DEBIAN_FRONTEND=noninteractive
# The lists of packages may be old, or not there.
"${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}"; } >&2
command -v chromium

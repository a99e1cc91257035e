#!/bin/bash
# Prints the path of a Chromium, for the test of the status page. If no Chromium is
# installed, installs Debian's package, which needs root.
set -euo pipefail

for name in "${CHROMIUM:-chromium}" chromium-browser google-chrome; do
	command -v "$name" && exit
done
install=(apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core)
export DEBIAN_FRONTEND=noninteractive
# The package lists may be old or missing.
"${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}"; } >&2
command -v chromium

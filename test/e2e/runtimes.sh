#!/bin/bash
# Runs all tests of this folder on each containerd version of the test bed in turn. Prints how
# many tests passed, failed and were skipped, and why. Keeps the output of each run in a file.
# Fails if a run fails, or if a test is skipped on containerd 2.4, which has every feature.
#
#   runtimes.sh [VERSION...]     default: 2.4 1.7 1.6
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

[ $# -gt 0 ] || set -- 2.4 1.7 1.6
logs=$(mktemp -d /tmp/kpbed-runtimes.XXXXXX)
bad=0 summary=()

# count RESULT FILE prints the number of tests, without subtests, with this result.
count() { grep -c "^--- $1: " "$2"; }

for version in "$@"; do
	log=$logs/$version.log
	printf '\n=== containerd %s\n' "$version"
	result=passed
	# On 1.7 the tests run one at a time, which takes longer.
	KUBEPARTS_E2E_CONTAINERD=$version go test -tags e2e -count=1 -timeout 120m -parallel 5 -v ./test/e2e 2>&1 | tee "$log" || result=FAILED
	if [ "$version" = 2.4 ] && grep -q '^ *--- SKIP: ' "$log"; then result='FAILED: no test may be skipped on this version'; fi
	[ "$result" = passed ] || bad=1
	summary+=("containerd $version $result: $(count PASS "$log") tests passed, $(count FAIL "$log") failed, $(count SKIP "$log") were skipped")
	mapfile -t -O ${#summary[@]} summary < <(grep -E '^ *--- FAIL: | needs .*, which containerd .* lacks$|NOT CHECKED, ' "$log" | sed 's/^ */    /')
done
printf '\n=== summary; the output is in %s\n' "$logs"
printf '%s\n' "${summary[@]}"
exit $bad

//go:build chaos

package clusterbed_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock of the agent is ten minutes ahead of, or behind, the clock of the API server. The agent is
// compiled with a package time whose clock is wrong, so the clock of the machine stays as it is. The
// clock of the container runtime is right. The back-off of a container depends on the times of the
// runtime; therefore this test does not cover it.
func TestAgent_ClockTenMinutesWrong(t *testing.T) {
	program := buildSkewed(t)
	for name, skew := range map[string]string{"ahead": "600", "behind": "-600"} {
		t.Run(name, func(t *testing.T) {
			inChaos(t)
			throughProxy(t)
			h, shared := follow(t, nil), t.TempDir()
			apply(t, shell("older", "sleep 100000"))
			awaitField(t, "pod/older", ".status.phase", "Running")
			require.NoError(t, stopAgent())
			t.Setenv("CLOCK_SKEW_SECONDS", skew)
			require.NoError(t, startAgentProgram(program, proxied(t)...))
			require.NoError(t, awaitNode())
			since := nodeField(t, `.status.conditions[?(@.type=="Ready")].lastTransitionTime`)
			awaitSkew(t, skew)

			apply(t, deployment("web", 2))
			awaitRollOut(t, "web")
			apply(t, once("ends", shared, 0))
			awaitField(t, "pod/ends", ".status.phase", "Running")
			apply(t, strings.Replace(shell("late", "sleep 100000"), "spec:", "spec:\n  activeDeadlineSeconds: 30", 1))
			awaitField(t, "pod/late", ".status.phase", "Running")
			began := time.Now()
			end(t, "ends", shared)
			awaitField(t, "pod/ends", ".status.phase", "Succeeded")
			awaitField(t, "pod/late", ".status.reason", "DeadlineExceeded")
			require.WithinDuration(t, began.Add(30*time.Second), time.Now(), 20*time.Second, "the deadline depends on one clock only")
			rollOut(t, "web", 1)
			awaitRollOut(t, "web")
			run(t, "delete", "pod", "older", "--timeout=30s")
			require.Equal(t, since, nodeField(t, `.status.conditions[?(@.type=="Ready")].lastTransitionTime`), "the node was always ready")
			h.check(t)
		})
	}
}

// awaitSkew waits until the node's lease was renewed with the wrong clock.
func awaitSkew(t *testing.T, skew string) {
	t.Helper()
	seconds, err := time.ParseDuration(skew + "s")
	require.NoError(t, err)
	await(t, "the lease has the time of the wrong clock", func() bool {
		out, err := kubectl(t.Context(), "", "-n", "kube-node-lease", "get", "lease", bed.env["NODE_NAME"], "-o", "jsonpath={.spec.renewTime}")
		if err != nil {
			return false
		}
		renewed, err := time.Parse(time.RFC3339Nano, out)
		return err == nil && time.Until(renewed.Add(-seconds)).Abs() < time.Minute
	})
}

// buildSkewed builds cluster-agent with a clock that differs from the machine's by
// CLOCK_SKEW_SECONDS, and returns the path of the program.
func buildSkewed(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	folder := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(folder, "time.go"))
	require.NoError(t, err)
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, bytes.Count(source, []byte(now)), "time.Now of this version of Go")
	temp, overlay := t.TempDir(), map[string]string{}
	for name, text := range map[string]string{"time.go": strings.Replace(string(source), now, now+"\tsec += skew\n", 1), "skew.go": skewSource} {
		overlay[filepath.Join(folder, name)] = filepath.Join(temp, name)
		require.NoError(t, os.WriteFile(filepath.Join(temp, name), []byte(text), 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	file := filepath.Join(temp, "overlay.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	program := filepath.Join(bed.env["KPCLUSTER_DIR"], "skewed-agent")
	require.NoError(t, script("env", "CGO_ENABLED=0", "go", "build", "-C", "../../agent/cluster", "-p", "1", "-overlay", file, "-o", program, "./cmd/cluster-agent"))
	return program
}

// skewSource is added to package time.
const skewSource = `package time

import "syscall"

var skew = func() (seconds int64) {
	text, _ := syscall.Getenv("CLOCK_SKEW_SECONDS")
	sign := int64(1)
	for _, c := range text {
		if c == '-' {
			sign = -1
		} else {
			seconds = 10*seconds + int64(c-'0')
		}
	}
	return sign * seconds
}()
`

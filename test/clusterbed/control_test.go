//go:build cluster || chaos

package clusterbed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shell returns a pod with a shell.
func shell(name, command string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: kubeparts.test/busybox:1, command: [sh, -c, %q], stdin: true}
`, name, command)
}

// credentials returns the flags for the credentials that up.sh has created for the node.
func credentials() []string {
	return []string{"--kubeconfig", filepath.Join(bed.env["KPCLUSTER_DIR"], "node.kubeconfig")}
}

// restart restarts the agent with other flags.
func restart(t *testing.T, flags ...string) {
	t.Helper()
	require.NoError(t, stopAgent())
	require.NoError(t, startAgent(flags...))
	require.NoError(t, awaitNode())
}

// bindBootstrap lets holders of the bootstrap token request client certificates of nodes, which the
// cluster then issues.
func bindBootstrap(t *testing.T) {
	t.Helper()
	for name, role := range map[string]string{"bootstrap": "system:node-bootstrapper", "approve": "system:certificates.k8s.io:certificatesigningrequests:nodeclient"} {
		apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %q}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]
`, name, role))
	}
}

// killAPIServer kills the API server and waits until it has ended.
func killAPIServer() error {
	if err := killDaemon("apiserver"); err != nil {
		return err
	}
	var refused error
	for range 100 {
		if _, refused = kubectl(context.Background(), "", "get", "--raw", "/readyz"); refused != nil {
			break
		}
	}
	if refused == nil {
		return errors.New("the API server answers although it was killed")
	}
	return nil
}

// killDaemon kills a daemon of the bed, which up.sh starts again.
func killDaemon(name string) error {
	return killProcess(filepath.Join(bed.env["KPCLUSTER_DIR"], name+".pid"))
}

// killProcess kills the process whose ID is in a file, and waits until it has ended.
func killProcess(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d of %s: %w", pid, file, err)
	}
	for range 1000 {
		// A process that has ended has no arguments, even if its parent has not read its exit status.
		arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if errors.Is(err, os.ErrNotExist) || err == nil && len(arguments) == 0 {
			return nil
		}
		pause(10 * time.Millisecond)
	}
	return fmt.Errorf("process %d of %s did not end within ten seconds after SIGKILL", pid, file)
}

func pause(d time.Duration) { <-time.After(d) }

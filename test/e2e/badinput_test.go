//go:build e2e

package e2e

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestManifest_InvalidYAMLIsRejected(t *testing.T) {
	t.Parallel()
	refused(t, "bad.yaml", "kind: Pod\n\tthis: is {not yaml", `(?i)yaml|line`)
}

func TestManifest_OtherKindIsRejected(t *testing.T) {
	t.Parallel()
	refused(t, "bad.yaml", strings.ReplaceAll(web, "kind: Pod", "kind: Deployment"), `kind.*Deployment`)
}

func TestManifest_WithoutContainersIsRejected(t *testing.T) {
	t.Parallel()
	refused(t, "bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: none}\nspec: {}\n", `spec\.containers`)
}

func TestManifest_UnknownFieldIsRejected(t *testing.T) {
	t.Parallel()
	refused(t, "bad.yaml", renamed("odd")+"  restartPolice: Always\n", `spec\.restartPolice`)
}

func TestManifest_DuplicateNameIsRejected(t *testing.T) {
	t.Parallel()
	refused(t, "second.yaml", renamed("good")+"  restartPolicy: Never\n", `metadata\.name`)
}

func TestManifest_DuplicateUIDIsRejected(t *testing.T) {
	t.Parallel()
	refused(t, "second.yaml", strings.Replace(renamed("twin"), "name: twin", "name: twin\n  uid: "+goodUID, 1), `metadata\.uid`)
}

func TestManifest_LargeFileIsRejected(t *testing.T) {
	t.Parallel()
	refused(t, "bad.yaml", renamed("large")+strings.Repeat("# filler\n", (2<<20)/9+1), `(?i)large|limit|size|bytes|MiB`)
}

func TestManifest_SymbolicLinkLoopIsRejected(t *testing.T) {
	t.Parallel()
	refused(t, "loop.yaml", "", `(?i)symbolic link|symlink|loop`)
}

const goodUID = "0b1e3c1a-7f43-4a5f-8d0e-6f6c1f0a9b33"

// good is the pod that must continue to run while another manifest is rejected.
const good = `
apiVersion: v1
kind: Pod
metadata:
  name: good
  uid: ` + goodUID + `
spec:
  containers:
  - {name: good, image: kubeparts.test/testserver:1}
`

// renamed returns the simplest manifest with another name. The caller can append fields of
// the pod's spec.
func renamed(name string) string {
	return strings.ReplaceAll(web, "name: web", "name: "+name)
}

// refused writes an invalid manifest, or a link to itself if text is empty. It checks that
//
//   - the agent reports the file in /healthz?verbose, and once in its output, with a reason
//     that matches pattern,
//   - the existing pod continues to run, and a new pod starts,
//   - the agent is healthy after the manifest has been removed.
func refused(t *testing.T, file, text, pattern string) {
	t.Helper()
	n := newNode(t)
	n.write("good.yaml", good)
	a := n.start()
	pod := n.waitRunning("good")
	before, err := live(pod)
	require.NoError(t, err)

	if text != "" {
		n.write(file, text)
	} else {
		require.NoError(t, os.Symlink(file, filepath.Join(n.manifests, file)))
	}
	reason := regexp.MustCompile(pattern)
	var problem string
	waitFor(t, 15*time.Second, "the problem in /healthz?verbose", func() (string, bool) {
		_, body := verbose(a)
		for line := range strings.Lines(body) {
			if _, after, found := strings.Cut(line, file+": "); found && reason.MatchString(after) {
				problem = line
				return "", true
			}
		}
		return body, false
	})
	t.Log(strings.TrimSpace(problem))

	n.write("later.yaml", renamed("later"))
	n.waitRunning("later")
	stays(t, quiet, "the agent logs the problem once and does not change the good pod", func() (string, bool) {
		after, err := live(pod)
		return after + n.output.String(), err == nil && after == before && a.output.linesWith(file) <= 1
	})
	require.Equal(t, 1, a.output.linesWith(file), "number of output lines about the problem")

	n.remove(file)
	waitFor(t, 15*time.Second, "/healthz to have no problem any more", func() (string, bool) {
		code, body := verbose(a)
		return body, code == http.StatusOK && !strings.Contains(body, file)
	})
}

// verbose returns the agent's verbose health response. The code is 0 if there is no response.
func verbose(a *agent) (code int, body string) {
	code, body, err := a.get("/healthz?verbose")
	if err != nil {
		return 0, err.Error()
	}
	return code, body
}

func TestStartup_ReportsMissingSocketAndExits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("web.yaml", web)
	missing := "unix://" + filepath.Join(n.root, "none.sock")
	exitsNaming(n, missing, n.flags(freeAddr(t), "--cri-endpoint", missing))
}

func TestStartup_ReportsPortInUseAndExits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("web.yaml", web)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	addr := listener.Addr().String()
	exitsNaming(n, addr, n.flags(addr))
	sandboxes, err := bed.sandboxes(map[string]string{labelAgent: n.name})
	require.NoError(t, err)
	require.Empty(t, sandboxes, "the agent started pods although it could not report them")
}

// Not parallel: a process named kubelet, here a script, makes all other agents exit.
func TestStartup_RejectsRuntimeUsedByKubelet(t *testing.T) {
	n := newNode(t)
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	require.NoError(t, os.WriteFile(kubelet, []byte("#!/bin/sh\necho up\nread -r line\n"), 0o700))
	cmd := exec.Command(kubelet, "--container-runtime-endpoint="+bed.endpoint)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(stdout, make([]byte, len("up\n")))
	require.NoError(t, err)

	exitsNaming(n, "kubelet", n.flags(freeAddr(t)))
	require.NoError(t, stdin.Close())
	require.Error(t, cmd.Wait(), "the script must be killed, not reach the end of its input")
}

// exitsNaming runs an agent that cannot start. It requires that the agent names the obstacle
// and exits with 1.
func exitsNaming(n *node, obstacle string, flags []string) {
	n.t.Helper()
	a, err := startAgent("", n.output, flags...)
	require.NoError(n.t, err)
	n.agent = a
	code, err := a.wait(20 * time.Second)
	require.NoError(n.t, err)
	require.Equal(n.t, 1, code)
	require.Contains(n.t, n.output.String(), strings.TrimPrefix(obstacle, "unix://"))
}

//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// newerHandler is the second runtime handler of the bed: a runc that supports idmapped
// mounts, which user namespaces need.
const newerHandler = "newer"

// answeredBy returns a condition on the container that responds at an address.
func answeredBy(address, container string) condition {
	return func() (string, bool) {
		_, body, err := httpGet("http://" + address + "/env")
		return fmt.Sprint(body, err), err == nil && strings.Contains(body, "WHO="+container+"\n")
	}
}

// hostPorts returns different ports of the node that were free when they were checked.
func hostPorts(t *testing.T, many int) (ports []string) {
	t.Helper()
	for len(ports) < many {
		listener, err := net.Listen("tcp", "127.0.0.1:"+randomPort())
		if err != nil {
			continue // another process uses the port
		}
		defer listener.Close() // after all ports have been chosen
		_, port, err := net.SplitHostPort(listener.Addr().String())
		require.NoError(t, err)
		ports = append(ports, port)
	}
	return ports
}

func TestHostPorts_ForwardToTheirContainers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ports := hostPorts(t, 3)
	all, local, sidecar := ports[0], ports[1], ports[2]
	n.write("ports.yaml", fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: ports}
spec:
  terminationGracePeriodSeconds: 2
  initContainers:
  - {name: side, image: %[1]q, restartPolicy: Always, env: [{name: WHO, value: side}], args: [serve, -http, ":8081"], ports: [{containerPort: 8081, hostPort: %[4]s}]}
  containers:
  - {name: main, image: %[1]q, env: [{name: WHO, value: main}], ports: [{containerPort: 8080, hostPort: %[2]s}, {name: local, containerPort: 8080, hostPort: %[3]s, hostIP: 127.0.0.1}]}
`, imageServer, all, local, sidecar))
	n.start()
	pod := n.waitRunning("ports")
	started := bed.instances(t, podLabels(pod))
	require.Equal(t, []string{"side", "main"}, []string{started[0].Name, started[1].Name}, "the sidecar must start first")
	for address, container := range map[string]string{
		net.JoinHostPort(pod.Status.HostIP, all): "main", "127.0.0.1:" + all: "main", "127.0.0.1:" + local: "main", "127.0.0.1:" + sidecar: "side",
	} {
		waitFor(t, 10*time.Second, container+" to answer at "+address, answeredBy(address, container))
	}
	_, _, err := httpGet("http://" + net.JoinHostPort(pod.Status.HostIP, local) + "/env")
	require.Error(t, err, "the port must be open on the loopback address only")

	was := bed.traces(t, pod)
	n.remove("ports.yaml")
	bed.requireGone(t, was)
	for _, port := range ports {
		waitFor(t, 10*time.Second, "port "+port+" to be free again", func() (string, bool) {
			listener, err := net.Listen("tcp", "127.0.0.1:"+port)
			if err == nil {
				err = listener.Close()
			}
			_, body, refused := httpGet("http://127.0.0.1:" + port + "/env")
			return fmt.Sprint(body, err, refused), err == nil && refused != nil
		})
	}
}

// TestAdmission_RejectsPodWithUsedHostPort checks that admission rejects a pod with a used host port
// before any object is created, and that the other pod continues to run.
func TestAdmission_RejectsPodWithUsedHostPort(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	port := hostPorts(t, 1)[0]
	text := func(name string) string {
		return endText(name, 1, fmt.Sprintf("containers: [{name: main, image: %q, ports: [{containerPort: 8080, hostPort: %s}]}]", imageServer, port))
	}
	n.write("first.yaml", text("first"))
	n.start()
	n.waitRunning("first")
	n.write("second.yaml", text("second"))
	pod := n.waitPod(startTimeout, "second", "to be refused", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	require.Equal(t, "NodePorts", pod.Status.Reason)
	sandboxes, err := bed.sandboxes(podLabels(pod))
	require.NoError(t, err)
	require.Empty(t, sandboxes)
	n.waitRunning("first")
}

func TestRuntimeClass_SelectsRuntimeHandler(t *testing.T) {
	needs(t, runtimeHandlers)
	t.Parallel()
	n := newNode(t)
	text := func(name, class string) string {
		return endText(name, 1, fmt.Sprintf("runtimeClassName: %s, containers: [{name: main, image: %q, args: [sleep, \"3600\"]}]", class, imageServer))
	}
	n.write("other.yaml", text("other", newerHandler))
	n.write("none.yaml", text("none", "nobodys"))
	n.start()
	pod := n.waitRunning("other")
	sandboxes, err := bed.sandboxes(podLabels(pod))
	require.NoError(t, err)
	require.Len(t, sandboxes, 1)
	require.DirExists(t, filepath.Join(bed.dir, "state", "runc-"+newerHandler, "k8s.io", sandboxes[0]), "the sandbox must be in the state directory of that runc")
	refused := n.waitStuck("none", "Failed to create pod sandbox: failed to get RuntimeClass nobodys: the runtime has no handler of that name")
	sandboxes, err = bed.sandboxes(podLabels(refused))
	require.NoError(t, err)
	require.Empty(t, sandboxes)
}

// waitStuck waits until the pod has a waiting reason with the message, and returns the pod.
func (n *node) waitStuck(name, message string) *corev1.Pod {
	n.t.Helper()
	return n.waitPod(startTimeout, name, "to have the message: "+message, func(p *corev1.Pod) bool {
		w := firstStatus(p).State.Waiting
		return p.Status.Phase == corev1.PodPending && w != nil && w.Reason == "ContainerCreating" && w.Message == message
	})
}

// TestUserNamespace checks that root in the pod has an unprivileged ID on the node, and owns
// the volumes' files on both sides.
func TestUserNamespace(t *testing.T) {
	needs(t, userNamespaces)
	t.Parallel()
	n := newNode(t)
	host := filepath.Join(filepath.Dir(n.root), "host")
	require.NoError(t, os.Mkdir(host, 0o700))
	n.write("objects.yaml", objects)
	const script = `id -u; cat /proc/self/uid_map | tr -s ' '; cat /secret/password; echo; stat -L -c 'secret %u' /secret/password
touch /host/here /disk/here && stat -c 'file %u' /host/here /disk/here; echo end > /dev/termination-log && echo said`
	text := func(name, class string) string {
		return podText(name, class+`hostUsers: false, volumes: [{name: secret, secret: {secretName: keys, defaultMode: 0400}}, {name: disk, emptyDir: {}},
    {name: host, hostPath: {path: `+host+`}}],`,
			"volumeMounts: [{name: secret, mountPath: /secret}, {name: disk, mountPath: /disk}, {name: host, mountPath: /host}],", script)
	}
	for _, name := range []string{"first", "second"} {
		n.write(name+".yaml", text(name, "runtimeClassName: "+newerHandler+", "))
	}
	// Debian's runc does not support idmapped mounts, and returns an error.
	n.write("old.yaml", text("old", ""))
	n.start()
	ids := map[string]bool{}
	for _, name := range []string{"first", "second"} {
		pod := n.waitRunning(name)
		said := n.said(pod)
		requireSays(t, said, "0", "hunter2", "secret 0", "file 0", "said")
		var inside, outside, length int
		for line := range strings.Lines(said) {
			if _, err := fmt.Sscan(line, &inside, &outside, &length); err == nil {
				break
			}
		}
		require.Zero(t, inside)
		require.Equal(t, 65536, length)
		require.GreaterOrEqual(t, outside, 65536)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pidOf(t, pod, "main")))
		require.NoError(t, err)
		require.Contains(t, string(status), fmt.Sprintf("Uid:\t%d\t", outside), "the process must have the outside UID on the node")
		ids[fmt.Sprint(outside)] = true
	}
	require.Len(t, ids, 2, "each pod must have its own user IDs")
	require.Equal(t, uint32(0), ownerOf(t, host+"/here"), "the file on the node's disk must belong to root")

	refused := n.waitStuck("old", "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	sandboxes, err := bed.sandboxes(podLabels(refused))
	require.NoError(t, err)
	require.Empty(t, sandboxes)
	for _, name := range []string{"first", "second", "old"} {
		n.remove(name + ".yaml")
		n.waitGone(20*time.Second, name)
	}
	n.requireNothingLeft()
}

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	stat, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return stat.Uid
}

//go:build cluster

package clusterbed_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of this file restart the agent, so they run before the parallel tests.

// A vendor's agent is the node. It has its own device and its own admission.
func TestAgent_OfAVendor(t *testing.T) {
	inNamespace(t)
	dir := bed.env["KPCLUSTER_DIR"]
	program := filepath.Join(dir, "clusternode")
	require.NoError(t, script("env", "CGO_ENABLED=0", "go", "build", "-C", "../vendor", "-p", "1", "-o", program, "./clusternode"))
	require.NoError(t, stopAgent())
	defer restart(t, credentials()...)
	require.NoError(t, startProgram(program, "--kubeconfig", filepath.Join(dir, "node.kubeconfig"), "--node-name", bed.env["NODE_NAME"],
		"--runtime", "unix://"+bed.env["CRI_SOCKET"], "--root", filepath.Join(dir, "vendor"), "--tenant", namespace(t)))
	awaitField(t, "node/"+bed.env["NODE_NAME"], `.status.allocatable.example\.com/dongle`, "2")
	require.NoError(t, awaitNode())
	dongle := func(name, command string) string {
		return strings.Replace(shell(name, command), "stdin: true", "resources: {limits: {example.com/dongle: 1}}", 1)
	}
	apply(t, strings.Replace(dongle("first", "echo $DONGLE > /dev/termination-log; test -c /dev/dongle"), "spec:", "spec:\n  restartPolicy: Never", 1))
	awaitField(t, "pod/first", ".status.phase", "Succeeded")
	require.Contains(t, []string{"a\n", "b\n"}, run(t, "get", "pod/first", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.message}"))
	for _, name := range []string{"second", "third"} {
		apply(t, dongle(name, "sleep 1000"))
		awaitField(t, "pod/"+name, ".status.phase", "Running")
	}
	apply(t, dongle("fourth", "sleep 1000"))
	awaitField(t, "pod/fourth", `.status.conditions[?(@.type=="PodScheduled")].reason`, "Unschedulable")

	_, err := kubectl(t.Context(), shell("stranger", "sleep 1000"), "-n", "default", "apply", "-f", "-")
	require.NoError(t, err)
	defer func() {
		_, err := kubectl(context.WithoutCancel(t.Context()), "", "-n", "default", "delete", "pod", "stranger")
		require.NoError(t, err)
	}()
	await(t, "the pod of another namespace is rejected", func() bool {
		out, err := kubectl(t.Context(), "", "-n", "default", "get", "pod", "stranger", "-o", "jsonpath={.status.reason}")
		return err == nil && out == "NoTenant"
	})
	for _, name := range []string{"second", "third", "fourth"} {
		run(t, "delete", "pod", name, "--timeout=30s")
	}
}

func TestAgent_RestartKeepsPods(t *testing.T) {
	inNamespace(t)
	apply(t, shell("a", "sleep 1000"))
	awaitField(t, "pod/a", ".status.phase", "Running")
	id := run(t, "get", "pod/a", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	startTime := []string{"exec", "a", "--", "cut", "-d", " ", "-f", "22", "/proc/1/stat"} // of the container's first process
	began := run(t, startTime...)
	require.NotEmpty(t, began)
	restart(t, credentials()...)
	await(t, "exec works again, in the same container", func() bool {
		out, err := kubectl(t.Context(), "", append([]string{"-n", namespace(t)}, startTime...)...)
		return err == nil && out == began
	})
	require.Equal(t, id+" 0", run(t, "get", "pod/a", "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}"))
}

// The node gets its credentials from the cluster: a client certificate with a bootstrap token, and a
// serving certificate that an administrator approves.
func TestAgent_CertificatesFromTheCluster(t *testing.T) {
	inNamespace(t)
	dir := bed.env["KPCLUSTER_DIR"]
	bindBootstrap(t)
	kubeconfig := filepath.Join(dir, "requested.kubeconfig")
	require.NoError(t, errors.Join(os.RemoveAll(kubeconfig), os.RemoveAll(filepath.Join(dir, "root", "pki"))), "of an earlier run")
	config, err := os.ReadFile(filepath.Join(dir, "kubelet.yaml"))
	require.NoError(t, err)
	text := strings.ReplaceAll(string(config), "tls", "#tls") + "serverTLSBootstrap: true\nrotateCertificates: true\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bootstrap.yaml"), []byte(text), 0o600))
	defer restart(t, credentials()...)
	restart(t, "--config", filepath.Join(dir, "bootstrap.yaml"), "--kubeconfig", kubeconfig, "--bootstrap-kubeconfig", filepath.Join(dir, "bootstrap.kubeconfig"))
	await(t, "the client certificate is issued and the kubeconfig written", func() bool {
		_, err := os.Stat(kubeconfig)
		return err == nil
	})
	require.FileExists(t, filepath.Join(dir, "root", "pki", "kubelet-client-current.pem"))

	apply(t, shell("a", "echo started; sleep 1000"))
	awaitField(t, "pod/a", ".status.phase", "Running")
	_, err = kubectl(t.Context(), "", "-n", namespace(t), "logs", "a")
	require.ErrorContains(t, err, "tls", "there is no serving certificate yet")
	await(t, "the serving certificate is requested", func() bool {
		out, err := kubectl(t.Context(), "", "get", "csr", "-o", `jsonpath={.items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")].metadata.name}`)
		if err != nil || out == "" {
			return false
		}
		_, err = kubectl(t.Context(), "", append([]string{"certificate", "approve"}, strings.Fields(out)...)...)
		return err == nil
	})
	await(t, "logs work", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "logs", "a")
		return err == nil && out == "started\n"
	})
}

// The API server is killed, and the agent restarts before the API server does. Pods run on,
// containers restart, static pods start, and the API server gets the statuses afterwards.
func TestAgent_RunsPodsWithoutTheAPIServer(t *testing.T) {
	inNamespace(t)
	dir, shared := bed.env["KPCLUSTER_DIR"], t.TempDir()
	write := func(name, command string) string {
		pod := strings.Replace(shell(name, command), "stdin: true", "volumeMounts: [{name: shared, mountPath: /shared}]", 1)
		return pod + "  volumes: [{name: shared, hostPath: {path: " + shared + "}}]\n"
	}
	lines := func(name string) int {
		data, err := os.ReadFile(filepath.Join(shared, name))
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		return strings.Count(string(data), "\n")
	}
	apply(t, shell("a", "sleep 1000"))
	apply(t, write("restarts", "echo start >> /shared/starts; sleep 1; exit 1"))
	awaitField(t, "pod/a", ".status.phase", "Running")
	await(t, "the container starts", func() bool { return lines("starts") > 0 })
	id := run(t, "get", "pod/a", "-o", "jsonpath={.status.containerStatuses[0].containerID}")

	t.Cleanup(func() { require.NoError(t, errors.Join(script("./up.sh"), awaitNode())) }) // if the test fails
	require.NoError(t, killAPIServer())
	require.NoError(t, stopAgent())
	require.NoError(t, startAgent(credentials()...))
	before := lines("starts")
	await(t, "the restarted agent restarts a container", func() bool { return lines("starts") > before })
	manifest := filepath.Join(dir, "manifests", "offline.yaml")
	text := strings.Replace(write("offline", "echo start >> /shared/static; sleep 1000"), "{name: offline}", "{name: offline, namespace: "+namespace(t)+"}", 1)
	require.NoError(t, os.WriteFile(manifest, []byte(text), 0o600))
	await(t, "a static pod starts", func() bool { return lines("static") == 1 })

	require.NoError(t, script("./up.sh"))
	require.NoError(t, awaitNode())
	awaitField(t, "pod/offline-"+bed.env["NODE_NAME"], ".status.phase", "Running")
	await(t, "the API server gets the number of restarts", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", "pod/restarts", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
		if err != nil {
			return false
		}
		count, err := strconv.Atoi(out)
		require.NoError(t, err)
		return count >= before
	})
	require.Equal(t, id+" 0", run(t, "get", "pod/a", "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}"))
	require.NoError(t, os.Remove(manifest))
	awaitGone(t, "pod/offline-"+bed.env["NODE_NAME"])
}

// A drain evicts the pods of the node, and a new pod runs only after the node is uncordoned.
func TestNode_Drain(t *testing.T) {
	inNamespace(t)
	awaitScheduler(t)
	t.Cleanup(func() { uncordon(t) }) // if the test fails
	apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: drained}
spec:
  selector: {matchLabels: {app: drained}}
  template:
    metadata: {labels: {app: drained}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "kubeparts.test/busybox:1", command: [sleep, "1000"]}]
`)
	awaitField(t, "deployment/drained", ".status.readyReplicas", "1")
	name := run(t, "get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
	run(t, "drain", bed.env["NODE_NAME"], "--pod-selector=app=drained", "--timeout=60s")
	awaitGone(t, "pod/"+name)
	awaitField(t, "pods", ".items[*].status.phase", "Pending")
	require.Empty(t, run(t, "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"))
	run(t, "uncordon", bed.env["NODE_NAME"])
	awaitField(t, "deployment/drained", ".status.readyReplicas", "1")
}

// A PodDisruptionBudget permits the eviction of one of two pods. The drain retries the eviction of
// the other pod until its timeout, and succeeds when the budget is deleted.
func TestNode_DrainWaitsForABudget(t *testing.T) {
	inNamespace(t)
	awaitScheduler(t)
	t.Cleanup(func() { uncordon(t) }) // if the test fails
	apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded}
spec:
  replicas: 2
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "kubeparts.test/busybox:1", command: [sleep, "1000"]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: guarded}}
`)
	awaitField(t, "deployment/guarded", ".status.readyReplicas", "2")
	awaitField(t, "poddisruptionbudget/guarded", ".status.disruptionsAllowed", "1")
	t.Cleanup(func() { // before the namespace is deleted, and also if the test fails
		_, err := kubectl(context.WithoutCancel(t.Context()), "", "uncordon", bed.env["NODE_NAME"])
		require.NoError(t, err)
	})
	drain := []string{"-n", namespace(t), "drain", bed.env["NODE_NAME"], "--pod-selector=app=guarded"}

	// The replacement of the first pod is pending, because the node is cordoned.
	_, err := kubectl(t.Context(), "", append(drain, "--timeout=15s")...)
	require.ErrorContains(t, err, "Cannot evict pod as it would violate the pod's disruption budget")
	awaitField(t, "deployment/guarded", ".status.readyReplicas", "1")
	for _, phase := range []string{"Pending", "Running"} {
		require.Len(t, strings.Fields(run(t, "get", "pods", "--field-selector=status.phase="+phase, "-o", "name")), 1)
	}

	run(t, "delete", "poddisruptionbudget", "guarded")
	_, err = kubectl(t.Context(), "", append(drain, "--timeout=60s")...)
	require.NoError(t, err)
	awaitField(t, "pods", ".items[*].status.phase", "Pending Pending")
	run(t, "uncordon", bed.env["NODE_NAME"])
	awaitField(t, "deployment/guarded", ".status.readyReplicas", "2")
}

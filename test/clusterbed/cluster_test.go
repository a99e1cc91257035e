//go:build cluster

package clusterbed_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNode_IsReadyAndComplete(t *testing.T) {
	out, err := kubectl(t.Context(), "", "get", "node", bed.env["NODE_NAME"], "-o", "json")
	require.NoError(t, err)
	var node struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct{ Taints []any }
		Status   struct {
			Addresses       []struct{ Type, Address string }
			DaemonEndpoints struct{ KubeletEndpoint struct{ Port int } }
			Capacity        map[string]string
			NodeInfo        map[string]any
			Images          []any
			Conditions      []struct{ Type, Status string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &node))
	require.Equal(t, 10250, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	require.Equal(t, bed.env["NODE_IP"], node.Status.Addresses[0].Address)
	require.Equal(t, "InternalIP", node.Status.Addresses[0].Type)
	require.Equal(t, bed.env["NODE_NAME"], node.Metadata.Labels["kubernetes.io/hostname"])
	require.NotEmpty(t, node.Status.Capacity["pods"])
	require.NotEmpty(t, node.Status.Images)
	require.Contains(t, node.Status.NodeInfo["containerRuntimeVersion"], "containerd://")
	conditions := map[string]string{}
	for _, c := range node.Status.Conditions {
		conditions[c.Type] = c.Status
	}
	require.Equal(t, map[string]string{"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}, conditions)
	await(t, "the controllers remove the taint", func() bool {
		out, err := kubectl(t.Context(), "", "get", "node", bed.env["NODE_NAME"], "-o", "jsonpath={.spec.taints}")
		return err == nil && out == ""
	})
	out, err = kubectl(t.Context(), "", "-n", "kube-node-lease", "get", "lease", bed.env["NODE_NAME"], "-o", "jsonpath={.spec.leaseDurationSeconds} {.metadata.ownerReferences[0].kind}")
	require.NoError(t, err)
	require.Equal(t, "40 Node", out)
}

func TestPod_RunLogsExecDelete(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	apply(t, shell("a", "echo started; cat; sleep 1000"))
	awaitField(t, "pod/a", ".status.phase", "Running")
	await(t, "the log has the container's line", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "logs", "a")
		return err == nil && out == "started\n"
	})
	require.Equal(t, "hello world\n", run(t, "exec", "a", "--", "echo", "hello", "world"))
	out, err := kubectl(t.Context(), "from stdin\n", "-n", namespace(t), "exec", "-i", "a", "--", "cat")
	require.NoError(t, err)
	require.Equal(t, "from stdin\n", out)
	_, err = kubectl(t.Context(), "", "-n", namespace(t), "exec", "a", "--", "sh", "-c", "exit 7")
	require.ErrorContains(t, err, "exit status 7")

	apply(t, strings.Replace(shell("reader", "read line; echo got $line"), "stdin: true}", "stdin: true, stdinOnce: true}\n  restartPolicy: Never", 1))
	awaitField(t, "pod/reader", ".status.phase", "Running")
	_, err = kubectl(t.Context(), "typed\n", "-n", namespace(t), "attach", "-i", "reader")
	require.NoError(t, err)
	awaitField(t, "pod/reader", ".status.phase", "Succeeded")
	require.Equal(t, "got typed\n", run(t, "logs", "reader"))

	apply(t, strings.Replace(shell("counts", "for i in 1 2 3; do echo $i; sleep 1; done"), "spec:", "spec:\n  restartPolicy: Never", 1))
	await(t, "the log can be followed", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "logs", "-f", "counts")
		return err == nil && out == "1\n2\n3\n"
	})
	terminal := exec.CommandContext(t.Context(), "script", "-qec", bed.env["RUN_INSIDE"]+" kubectl -n "+namespace(t)+" exec -it a -- tty", "/dev/null")
	typescript, err := terminal.CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(typescript), "/dev/pts/")

	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, []byte("copied"), 0o600))
	run(t, "cp", file, "a:/tmp/f")
	require.Equal(t, "copied", run(t, "exec", "a", "--", "cat", "/tmp/f"))

	run(t, "delete", "pod", "a", "--grace-period=1", "--timeout=20s")
	apply(t, shell("b", "sleep 1000"))
	awaitField(t, "pod/b", ".status.phase", "Running")
	run(t, "delete", "pod", "b", "--grace-period=0", "--force")
	awaitGone(t, "pod/b")
}

func TestPod_HasClusterDNSVariablesAndAToken(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	apply(t, shell("a", "sleep 1000"))
	awaitField(t, "pod/a", ".status.phase", "Running")
	ns := namespace(t)
	require.Equal(t, fmt.Sprintf("search %s.svc.cluster.local svc.cluster.local cluster.local example.test\nnameserver %s\noptions ndots:5\n", ns, bed.env["CLUSTER_DNS"]),
		run(t, "exec", "a", "--", "cat", "/etc/resolv.conf"))
	require.Contains(t, run(t, "exec", "a", "--", "env"), "KUBERNETES_SERVICE_HOST=10.96.0.1\n")
	require.Equal(t, ns, run(t, "exec", "a", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/namespace"))
	require.Len(t, strings.Split(run(t, "exec", "a", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"), "."), 3)
	require.Contains(t, run(t, "exec", "a", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"), "BEGIN CERTIFICATE")
}

func TestPod_HostPort(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "kubeparts.test/testserver:1", ports: [{containerPort: 8080, hostPort: 18088}]}]
`)
	awaitField(t, "pod/web", ".status.phase", "Running")
	await(t, "the port of the node answers", func() bool {
		answer, err := exec.CommandContext(t.Context(), bed.env["RUN_INSIDE"], "curl", "-s", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}", "http://"+bed.env["NODE_IP"]+":18088/env").Output()
		return err == nil && string(answer) == "200"
	})
}

func TestPod_PortForward(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "kubeparts.test/testserver:1"}]
`)
	awaitField(t, "pod/web", ".status.phase", "Running")
	ctx, stop := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, bed.env["RUN_INSIDE"], "kubectl", "-n", namespace(t), "port-forward", "pod/web", "18080:8080")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer func() { stop(); _ = c.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "Forwarding from")
	await(t, "the pod answers", func() bool {
		answer, err := exec.CommandContext(t.Context(), bed.env["RUN_INSIDE"], "curl", "-s", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:18080/env").Output()
		return err == nil && string(answer) == "200"
	})
}

func TestStaticPod_HasAMirror(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	manifest := filepath.Join(bed.env["KPCLUSTER_DIR"], "manifests", "static.yaml")
	text := strings.Replace(shell("static", "sleep 1000"), "{name: static}", "{name: static, namespace: "+namespace(t)+"}", 1)
	require.NoError(t, os.WriteFile(manifest, []byte(text), 0o600))
	mirror := "pod/static-" + bed.env["NODE_NAME"]
	awaitField(t, mirror, ".status.phase", "Running")
	require.Equal(t, "Node", run(t, "get", mirror, "-o", "jsonpath={.metadata.ownerReferences[0].kind}"))
	require.Equal(t, "ok\n", run(t, "exec", "static-"+bed.env["NODE_NAME"], "--", "echo", "ok"))
	uid := run(t, "get", mirror, "-o", "jsonpath={.metadata.uid}")
	run(t, "delete", mirror, "--wait=false")
	await(t, "the mirror is created again", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", mirror, "-o", "jsonpath={.metadata.uid}")
		return err == nil && out != uid
	})
	awaitField(t, mirror, ".status.phase", "Running")
	require.NoError(t, os.Remove(manifest))
	awaitGone(t, mirror)
}

func TestDeployment_ThreeReplicas(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	deployment := `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, version: "%s"}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "kubeparts.test/busybox:1", command: [sleep, "1000"]}]
`
	for _, version := range []string{"1", "2"} {
		apply(t, fmt.Sprintf(deployment, version))
		run(t, "rollout", "status", "deployment/web", "--timeout=90s")
	}
	awaitField(t, "deployment/web", ".status.readyReplicas", "3")
	awaitField(t, "pods", ".items[*].metadata.labels.version", "2 2 2")
	run(t, "scale", "deployment/web", "--replicas=0")
	awaitField(t, "pods", ".items[*].metadata.name", "")
}

func TestJob_Completes(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	apply(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "kubeparts.test/busybox:1", command: [sh, -c, "echo done"]}]
`)
	awaitField(t, "job/work", ".status.succeeded", "2")
	require.Contains(t, run(t, "logs", "job/work"), "done\n")
}

func TestDaemonSetAndStatefulSet_PodsBecomeReady(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	template := `
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "kubeparts.test/busybox:1", command: [sleep, "1000"]}]
`
	apply(t, "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: ds}\nspec:"+fmt.Sprintf(template, "ds"))
	apply(t, "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: ss}\nspec:\n  replicas: 2\n  serviceName: ss"+fmt.Sprintf(template, "ss"))
	awaitField(t, "daemonset/ds", ".status.numberReady", "1")
	awaitField(t, "statefulset/ss", ".status.readyReplicas", "2")
	require.Equal(t, "ss-1\n", run(t, "exec", "ss-1", "--", "hostname"))
}

func TestDebug_AddsAnEphemeralContainer(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	apply(t, shell("a", "sleep 1000"))
	awaitField(t, "pod/a", ".status.phase", "Running")
	run(t, "debug", "a", "--image=kubeparts.test/busybox:1", "--profile=general", "-c", "debugger", "--", "sh", "-c", "echo in debugger; sleep 1000")
	await(t, "the debugger runs", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", "pod/a", "-o", "jsonpath={.status.ephemeralContainerStatuses[0].state.running.startedAt}")
		return err == nil && out != ""
	})
	await(t, "the debugger has a log", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "logs", "a", "-c", "debugger")
		return err == nil && out == "in debugger\n"
	})
}

func TestCronJob_StartsJobs(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	apply(t, `
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: "kubeparts.test/busybox:1", command: ["true"]}]}}}}
`)
	awaitWithin(t, 150*time.Second, "a job has succeeded", func() bool { // up to 60 s until the first minute begins
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", "cronjob/tick", "-o", "jsonpath={.status.lastSuccessfulTime}")
		return err == nil && out != ""
	})
}

// Pods that can't run have the kubelet's reasons, and other pods run.
func TestPods_BadInput(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	apply(t, strings.Replace(shell("missing", "sleep 1000"), "stdin: true", "envFrom: [{configMapRef: {name: later}}]", 1))
	apply(t, strings.Replace(shell("unsupported", "sleep 1000"), "stdin: true", "volumeMounts: [{name: v, mountPath: /v}]", 1)+"  volumes: [{name: v, nfs: {server: 192.0.2.1, path: /}}]\n")
	apply(t, shell("good", "sleep 1000"))
	awaitField(t, "pod/good", ".status.phase", "Running")
	awaitField(t, "pod/missing", ".status.containerStatuses[0].state.waiting.reason", "CreateContainerConfigError")
	awaitField(t, "pod/unsupported", ".status.phase", "Failed")
	require.Contains(t, run(t, "get", "pod/unsupported", "-o", "jsonpath={.status.message}"), "nfs")
	run(t, "create", "configmap", "later", "--from-literal=a=b")
	awaitField(t, "pod/missing", ".status.phase", "Running")
}

// Metrics of the node as metrics-server requests them.
func TestMetrics_OfTheNode(t *testing.T) {
	t.Parallel()
	inNamespace(t)
	apply(t, shell("a", "sleep 1000"))
	awaitField(t, "pod/a", ".status.phase", "Running")
	await(t, "the metrics have the pod", func() bool {
		out, err := kubectl(t.Context(), "", "get", "--raw", "/api/v1/nodes/"+bed.env["NODE_NAME"]+"/proxy/metrics/resource")
		return err == nil && strings.Contains(out, "node_cpu_usage_seconds_total") && strings.Contains(out, `container_memory_working_set_bytes{container="main",namespace="`+namespace(t)+`",pod="a"}`)
	})
}

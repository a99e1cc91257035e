//go:build cluster || chaos

package clusterbed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// bed is the cluster with its node. It is set by TestMain.
var bed struct {
	env   map[string]string
	agent *exec.Cmd
	logs  string // the file of the agent's log
	// renewed is the time of the last renewal of the node's lease before the start of the agent.
	renewed string
	ended   chan error
	// faults means that a test has caused faults, so that the API server may have refused requests.
	faults bool
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// suite runs all tests in a bed.
type suite struct{ *testing.M }

// Run implements goleak.TestingM.
func (s suite) Run() int {
	code := 1
	err := up()
	if err == nil {
		code = s.M.Run()
		err = errors.Join(refusedRequests(), stopAgent())
	}
	if os.Getenv("KPCLUSTER_KEEP") == "" {
		err = errors.Join(err, script("./down.sh", "--purge"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// script runs a script of this folder.
func script(words ...string) error {
	c := exec.Command(words[0], words[1:]...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%v: %w", words, err)
	}
	return nil
}

// up brings up the bed and starts the agent as its node.
func up() error {
	if err := script("./up.sh"); err != nil {
		return err
	}
	dir := os.Getenv("KPCLUSTER_DIR")
	if dir == "" {
		dir = "/tmp/kpcluster"
	}
	data, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		return err
	}
	bed.env = map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		bed.env[name] = value
	}
	if err := script("env", "CGO_ENABLED=0", "go", "build", "-C", "../../agent/cluster", "-p", "1", "-tags", "grpcnotrace", "-o", filepath.Join(dir, "cluster-agent"), "./cmd/cluster-agent"); err != nil {
		return err
	}
	if err := writeConfig(dir); err != nil {
		return err
	}
	if err := startNode(); err != nil {
		return err
	}
	return awaitNode()
}

// startNode starts the agent of the node: cluster-agent, or the kubelet if KPCLUSTER_NODE has this name.
func startNode() error {
	switch name := os.Getenv("KPCLUSTER_NODE"); name {
	case "", "cluster-agent":
		return startAgent(credentials()...)
	case "kubelet":
		return startKubelet()
	default:
		return fmt.Errorf("KPCLUSTER_NODE=%s: neither cluster-agent nor kubelet", name)
	}
}

// writeConfig writes the configuration file of the agent.
func writeConfig(dir string) error {
	for _, name := range []string{"manifests", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	resolv := filepath.Join(dir, "resolv.conf")
	return errors.Join(os.WriteFile(resolv, []byte("nameserver 192.0.2.1\nsearch example.test\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "kubelet.yaml"), fmt.Appendf(nil, `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[2]s
tlsCertFile: %[1]s/pki/node-serving.crt
tlsPrivateKeyFile: %[1]s/pki/node-serving.key
authentication: {x509: {clientCAFile: %[3]s}}
clusterDNS: [%[4]s]
clusterDomain: cluster.local
resolvConf: %[5]s
staticPodPath: %[1]s/manifests
fileCheckFrequency: 1s
podLogsDir: %[1]s/logs
cgroupRoot: /%[6]s
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%, imagefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
`, dir, bed.env["CRI_SOCKET"], bed.env["CLUSTER_CA"], bed.env["CLUSTER_DNS"], resolv, bed.env["KPCLUSTER_NETNS"]), 0o600))
}

// startAgent starts cluster-agent in the network namespace of the bed.
func startAgent(flags ...string) error {
	return startAgentProgram(filepath.Join(bed.env["KPCLUSTER_DIR"], "cluster-agent"), flags...)
}

// startAgentProgram starts a build of cluster-agent in the network namespace of the bed.
func startAgentProgram(program string, flags ...string) error {
	dir := bed.env["KPCLUSTER_DIR"]
	return startProgram(append([]string{
		program, "--config", filepath.Join(dir, "kubelet.yaml"), "--root-dir", filepath.Join(dir, "root"),
		"--hostname-override", bed.env["NODE_NAME"], "--node-ip", bed.env["NODE_IP"], "--v", "4",
	}, flags...)...)
}

// startKubelet starts the real kubelet as the node, with the configuration of the agent.
func startKubelet() error {
	if err := script("./kubelet.sh"); err != nil {
		return err
	}
	dir := bed.env["KPCLUSTER_DIR"]
	config, err := os.ReadFile(filepath.Join(dir, "kubelet.yaml"))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "real-kubelet.yaml")
	config = append(config, "failCgroupV1: false\nfailSwapOn: false\ncgroupDriver: cgroupfs\n"...)
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	return startProgram(filepath.Join(bed.env["PROGRAMS"], "kubelet"), "--config", file, "--root-dir", filepath.Join(dir, "kubelet"), "--cert-dir", filepath.Join(dir, "kubelet"),
		"--kubeconfig", filepath.Join(dir, "node.kubeconfig"), "--hostname-override", bed.env["NODE_NAME"], "--node-ip", bed.env["NODE_IP"], "--v", "2")
}

// startProgram starts the agent of the node in the network namespace of the bed.
func startProgram(words ...string) error {
	dir := bed.env["KPCLUSTER_DIR"]
	if renewed := leaseRenewed(); renewed != "" { // the API server may be down
		bed.renewed = renewed
	}
	bed.logs = filepath.Join(dir, "log", "agent.log")
	log, err := os.OpenFile(bed.logs, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	bed.agent = exec.Command("nsenter", append([]string{"--net=/run/netns/" + bed.env["KPCLUSTER_NETNS"]}, words...)...)
	bed.agent.Stdout, bed.agent.Stderr = log, log
	if err := bed.agent.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "agent.pid"), fmt.Append(nil, bed.agent.Process.Pid), 0o600); err != nil { // for down.sh
		return err
	}
	bed.ended = make(chan error, 1)
	go func() { bed.ended <- bed.agent.Wait() }()
	return nil
}

// stopAgent stops the agent. Its pods keep running.
func stopAgent() error {
	if err := bed.agent.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-bed.ended:
		return err
	case <-time.After(20 * time.Second):
		return errors.Join(errors.New("the agent did not end within 20 s"), bed.agent.Process.Kill())
	}
}

// leaseRenewed returns when the lease of the node was renewed last. It returns "" if this is not known.
func leaseRenewed() string {
	renewed, err := kubectl(context.Background(), "", "--request-timeout=2s", "-n", "kube-node-lease", "get", "lease", bed.env["NODE_NAME"], "-o", "jsonpath={.spec.renewTime}")
	if err != nil {
		return ""
	}
	return renewed
}

// awaitNode waits until the node is ready and the running agent has renewed the node's lease. After a
// restart, the condition Ready alone may still be that of the previous agent.
func awaitNode() error {
	var text string
	for range 300 {
		select {
		case err := <-bed.ended:
			return fmt.Errorf("the agent has ended: %w\n%s", err, lastLines())
		case <-time.After(200 * time.Millisecond):
		}
		text, _ = kubectl(context.Background(), "", "get", "node", bed.env["NODE_NAME"], "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if renewed := leaseRenewed(); text == "True" && renewed != "" && renewed != bed.renewed {
			return nil
		}
	}
	return fmt.Errorf("the node did not get ready: %s\n%s", text, lastLines())
}

// lastLines returns the end of the agent's log.
func lastLines() string {
	data, err := os.ReadFile(bed.logs)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4000):])
}

// kubectl runs kubectl as the administrator and returns its output.
func kubectl(ctx context.Context, stdin string, words ...string) (string, error) {
	c := exec.CommandContext(ctx, bed.env["RUN_INSIDE"], append([]string{"kubectl"}, words...)...)
	c.Stdin = strings.NewReader(stdin)
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	err := c.Run()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(words, " "), err, problems.String())
	}
	return out.String(), err
}

// run runs kubectl in the namespace of the test, and requires that it succeeds.
func run(t *testing.T, words ...string) string {
	t.Helper()
	out, err := kubectl(t.Context(), "", append([]string{"-n", namespace(t)}, words...)...)
	require.NoError(t, err)
	return out
}

// apply creates or changes objects in the namespace of the test.
func apply(t *testing.T, manifest string) {
	t.Helper()
	_, err := kubectl(t.Context(), manifest, "-n", namespace(t), "apply", "-f", "-")
	require.NoError(t, err)
}

// inNamespace creates the namespace of the test, and deletes it when the test ends.
func inNamespace(t *testing.T) {
	t.Helper()
	_, err := kubectl(t.Context(), "", "create", "namespace", namespace(t))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			out, err := kubectl(ctx, "", "-n", namespace(t), "describe", "pods")
			t.Log(out, err, lastLines())
		}
		_, err := kubectl(ctx, "", "delete", "namespace", namespace(t), "--timeout=120s")
		require.NoError(t, err)
	})
	await(t, "the namespace has its service account", func() bool {
		_, err := kubectl(t.Context(), "", "-n", namespace(t), "get", "serviceaccount", "default")
		return err == nil
	})
}

// namespace returns the name of the namespace of a test.
func namespace(t *testing.T) string {
	t.Helper()
	name, _, _ := strings.Cut(strings.ToLower(t.Name()), "/")
	return strings.ReplaceAll(name, "_", "-")
}

// await waits until a condition is true, at most 90 seconds.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	awaitWithin(t, 90*time.Second, what, done)
}

// awaitWithin waits until a condition is true, at most for limit.
func awaitWithin(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	tick, end := time.NewTicker(300*time.Millisecond), time.After(limit)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			require.Fail(t, "still not: "+what)
		}
	}
}

// awaitField waits until a field of an object has a value.
func awaitField(t *testing.T, object, path, want string) {
	t.Helper()
	await(t, fmt.Sprintf("%s of %s becomes %q", path, object, want), func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", object, "-o", "jsonpath={"+path+"}")
		return err == nil && out == want
	})
}

// awaitScheduler waits until the scheduler knows the node as it is now: after a restart of the API server,
// the scheduler may watch pods again before it watches nodes again.
func awaitScheduler(t *testing.T) {
	t.Helper()
	seen := strconv.FormatInt(time.Now().UnixNano(), 10)
	run(t, "label", "node", bed.env["NODE_NAME"], "--overwrite", "kubeparts.test/seen="+seen)
	apply(t, shell("scheduled", "sleep 1000")+"  nodeSelector: {kubeparts.test/seen: \""+seen+"\"}\n")
	awaitField(t, "pod/scheduled", ".status.phase", "Running")
	run(t, "delete", "pod", "scheduled", "--now")
}

// uncordon lets the scheduler bind pods to the node again.
func uncordon(t *testing.T) {
	t.Helper()
	_, err := kubectl(context.WithoutCancel(t.Context()), "", "uncordon", bed.env["NODE_NAME"])
	require.NoError(t, err)
}

// awaitGone waits until an object does not exist.
func awaitGone(t *testing.T, object string) {
	t.Helper()
	await(t, object+" is deleted", func() bool {
		out, err := kubectl(t.Context(), "", "-n", namespace(t), "get", object, "--ignore-not-found", "-o", "name")
		return err == nil && out == ""
	})
}

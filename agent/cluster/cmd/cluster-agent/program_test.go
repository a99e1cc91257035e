package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeparts/kubeparts/fakecri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// syncBuffer is a buffer that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// bed is a runtime in memory on a socket, and an API server in memory.
type bed struct {
	t      *testing.T
	dir    string
	socket string
	client *fake.Clientset
	log    *syncBuffer
	config *rest.Config // of the first client
}

func newBed(t *testing.T, objects ...runtime.Object) *bed {
	t.Helper()
	dir := t.TempDir()
	b := &bed{t: t, dir: dir, socket: filepath.Join(dir, "cri.sock"), client: fake.NewClientset(objects...), log: &syncBuffer{}}
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms(), WriteLogs: true})
	require.NoError(t, err)
	listener, err := net.Listen("unix", b.socket)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- node.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
		node.Shutdown()
	})
	b.client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		r.Status.Authenticated, r.Status.User.Username = r.Spec.Token == "jane's", "jane"
		return true, r, nil
	})
	b.client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		r.Status.Allowed = r.Spec.User == "jane" && r.Spec.ResourceAttributes.Subresource != "metrics"
		return true, r, nil
	})
	b.client.PrependReactor("create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		action.(clienttesting.CreateAction).GetObject().(*corev1.Node).UID = "uid-node"
		return false, nil, nil
	})
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://api.test", InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: "node"}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, filepath.Join(dir, "kubeconfig")))
	return b
}

// write writes a file in the folder of the bed and returns its path.
func (b *bed) write(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(b.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// args returns the flags of the agent. more are fields of its configuration file.
func (b *bed) args(more string) []string {
	b.t.Helper()
	config := b.write("kubelet.yaml", fmt.Sprintf(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: %d
healthzPort: %d
containerRuntimeEndpoint: unix://%s
cgroupsPerQOS: false
enforceNodeAllocatable: [none]
podLogsDir: %s
evictionHard: {memory.available: 1Ki, nodefs.available: 1Ki, nodefs.inodesFree: "1", imagefs.available: 1Ki, imagefs.inodesFree: "1"}
imageGCHighThresholdPercent: 100
%s`, freePort(b.t), freePort(b.t), b.socket, filepath.Join(b.dir, "logs"), more))
	return []string{"--config", config, "--kubeconfig", filepath.Join(b.dir, "kubeconfig"), "--root-dir", filepath.Join(b.dir, "root"), "--hostname-override", "Node1", "--node-ip", "10.1.2.3"}
}

// given is the set of ports that freePort has returned.
var given sync.Map

// freePort returns a port that was free when it was checked. It returns each port only once, and none
// that the kernel chooses for connections or listeners.
func freePort(t *testing.T) int {
	t.Helper()
	for {
		port := 20_000 + rand.IntN(10_000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // another process uses the port
		}
		require.NoError(t, l.Close())
		if _, taken := given.LoadOrStore(port, true); !taken {
			return port
		}
	}
}

// start runs the agent until the test ends or stop is called.
func (b *bed) start(args ...string) (stop func() error) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, args, b.log, connectors{client: func(c *rest.Config) (kubernetes.Interface, error) {
			if b.config == nil {
				b.config = c
			}
			return b.client, nil
		}})
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	b.t.Cleanup(func() { require.NoError(b.t, stop()) })
	return stop
}

// await waits until a condition is true.
func (b *bed) await(what string, done func() bool) {
	b.t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			require.Fail(b.t, "still not: "+what, b.log.String())
		}
	}
}

// node returns the node at the API server, or nil.
func (b *bed) node() *corev1.Node {
	n, err := b.client.CoreV1().Nodes().Get(b.t.Context(), "node1", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return n
}

// get sends a request to the kubelet API with a token.
func (b *bed) get(path, token string) (int, string) {
	b.t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	port := b.node().Status.DaemonEndpoints.KubeletEndpoint.Port
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", port, path), http.NoBody)
	require.NoError(b.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(b.t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(b.t, err)
	return answer.StatusCode, string(body)
}

func pod(name, nodeName string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-1"},
		Spec:       corev1.PodSpec{NodeName: nodeName, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "work", Image: "demo/job:1"}}},
	}
}

func TestRun_RunsPodsAndServesTheKubeletAPI(t *testing.T) {
	t.Parallel()
	b := newBed(t, pod("job", "node1"))
	b.write("manifests/web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: demo/web:1}]}\n")
	b.write("manifests/broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: Broken}\n")
	stop := b.start(b.args(`
staticPodPath: ` + filepath.Join(b.dir, "manifests") + `
shutdownGracePeriod: 10s
registerWithTaints: [{key: a, effect: NoSchedule}]
kubeAPIQPS: 7
`)...)
	b.await("the job has ended", func() bool {
		p, err := b.client.CoreV1().Pods("default").Get(t.Context(), "job", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodSucceeded
	})
	b.await("the mirror pod of the static pod exists", func() bool {
		_, err := b.client.CoreV1().Pods("default").Get(t.Context(), "web-node1", metav1.GetOptions{})
		return err == nil
	})
	n := b.node()
	require.Equal(t, []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}, n.Spec.Taints)
	require.Contains(t, n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.1.2.3"})
	require.Contains(t, n.Status.NodeInfo.KubeletVersion, kubernetesVersion+"+kubeparts")
	require.InDelta(t, 7, b.config.QPS, 0)
	require.Equal(t, "application/vnd.kubernetes.protobuf", b.config.ContentType)
	require.Contains(t, b.log.String(), "does not notice the shutdown of the machine")

	code, body := b.get("/pods", "jane's")
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, "web-node1")
	for path, want := range map[string]int{"/metrics": http.StatusForbidden, "/containerLogs/default/job/work": http.StatusOK, "/configz": http.StatusOK, "/logs/": http.StatusOK, "/healthz": http.StatusOK} {
		code, body = b.get(path, "jane's")
		require.Equal(t, want, code, "%s: %s", path, body)
	}
	code, body = b.get("/agent/status", "jane's")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "broken.yaml")
	for _, token := range []string{"", "wrong"} {
		code, _ = b.get("/pods", token)
		require.Equal(t, http.StatusUnauthorized, code)
	}
	require.FileExists(t, filepath.Join(b.dir, "root", "pki", "kubelet.crt"))
	require.NoError(t, stop())
	require.FileExists(t, filepath.Join(b.dir, "root", "cluster-pods.json"))
	_, err := b.client.CoreV1().Pods("default").Get(t.Context(), "web-node1", metav1.GetOptions{})
	require.NoError(t, err, "the pods keep running")
}

func TestRun_ServesWithACertificateOfTheCluster(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.start(b.args("serverTLSBootstrap: true\nstaticPodURL: http://127.0.0.1:1/pods\nreadOnlyPort: " + fmt.Sprint(freePort(t)))...)
	b.await("a certificate is requested", func() bool {
		list, err := b.client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) > 0 && list.Items[0].Spec.SignerName == "kubernetes.io/kubelet-serving"
	})
}

func TestRun_ReportsErrors(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	port := busy.Addr().(*net.TCPAddr).Port
	for more, want := range map[string]string{
		"authentication: {webhook: {enabled: false}}":  "no client could use the kubelet API",
		fmt.Sprintf("readOnlyPort: %d", port):          "readOnlyPort: ",
		"rotateCertificates: true":                     "the kubeconfig has no client certificate",
		"tlsCertFile: /none\ntlsPrivateKeyFile: /none": "/none",
		"staticPodURL: 'http://user:secret@%zz/'":      "staticPodURL",
		"maxPods: many": "want a whole number",
	} {
		err := run(t.Context(), b.args(more), b.log, connectors{client: func(*rest.Config) (kubernetes.Interface, error) { return b.client, nil }})
		require.ErrorContains(t, err, want)
	}
	nodes, err := b.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, nodes.Items, "an agent whose port is in use, perhaps by a kubelet, does not join the cluster")
	args := append(b.args(""), "--container-runtime-endpoint", "unix:///none.sock")
	require.ErrorContains(t, run(t.Context(), args, b.log, connectors{}), "connect to the CRI runtime at unix:///none.sock")
	failing := connectors{client: func(*rest.Config) (kubernetes.Interface, error) { return nil, io.ErrUnexpectedEOF }}
	require.ErrorContains(t, run(t.Context(), b.args(""), b.log, failing), "create a client of the API server: unexpected EOF")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, run(stopped, b.args(""), b.log, failing), "the user stopped the agent before it was connected")
}

func TestConfigz_HasNoSecrets(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--kubeconfig", "k"}, io.Discard)
	require.NoError(t, err)
	o.StaticPodURL, o.StaticPodURLHeader = "https://user:secret@host/path?token=secret", map[string][]string{"X": {"secret"}}
	text := fmt.Sprint((&program{opts: o}).configz())
	require.NotContains(t, text, "secret")
	require.Contains(t, text, "https://user:xxxxx@host/path")
}

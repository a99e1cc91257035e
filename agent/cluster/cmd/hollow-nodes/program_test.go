package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

// bed is an API server in memory.
type bed struct {
	t          *testing.T
	client     *fake.Clientset
	kubeconfig string
	temp       string // parent of the program's folder
	log        *syncBuffer
	podWatches atomic.Int64 // watches of pods that have started

	mu      sync.Mutex
	configs map[string]rest.Config // of the clients, by user agent
}

// newBed returns a bed. It sets the folder of temporary files, so the test must not run in parallel.
func newBed(t *testing.T, objects ...runtime.Object) *bed {
	t.Helper()
	dir := t.TempDir()
	b := &bed{
		t: t, client: fake.NewClientset(objects...), log: &syncBuffer{}, configs: map[string]rest.Config{},
		kubeconfig: filepath.Join(dir, "kubeconfig"), temp: filepath.Join(dir, "tmp"),
	}
	require.NoError(t, os.Mkdir(b.temp, 0o700))
	t.Setenv("TMPDIR", b.temp)
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://api.test", InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: "admin"}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, b.kubeconfig))
	b.react()
	return b
}

// react makes the fake clientset do what the API server does: set UIDs, delete pods gracefully,
// issue tokens, and use the field selectors of pods.
func (b *bed) react() {
	created := func(action clienttesting.Action) (bool, runtime.Object, error) {
		if o, ok := action.(clienttesting.CreateAction).GetObject().(metav1.Object); ok && action.GetSubresource() == "" {
			o.SetUID(types.UID("uid-" + o.GetName()))
		}
		return false, nil, nil
	}
	b.client.PrependReactor("create", "nodes", created)
	b.client.PrependReactor("create", "pods", created)
	b.client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		r.Status = authenticationv1.TokenRequestStatus{Token: "token", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
		return true, r, nil
	})
	b.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		d := action.(clienttesting.DeleteActionImpl)
		if s := d.DeleteOptions.GracePeriodSeconds; s != nil && *s == 0 {
			return false, nil, nil
		}
		o, err := b.client.Tracker().Get(d.GetResource(), d.GetNamespace(), d.GetName())
		if err != nil {
			return true, nil, err
		}
		pod := o.(*corev1.Pod).DeepCopy()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(30*time.Second))), new(int64(30))
		return true, pod, b.client.Tracker().Update(d.GetResource(), pod, d.GetNamespace())
	})
	b.client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		l := action.(clienttesting.ListActionImpl)
		list, err := b.pods(action, l.GetListRestrictions().Fields)
		return true, list, err
	})
	b.client.PrependWatchReactor("pods", b.watchPods)
}

// pods returns the pods that a field selector selects.
func (b *bed) pods(action clienttesting.Action, selector fields.Selector) (*corev1.PodList, error) {
	all, err := b.client.Tracker().List(action.GetResource(), corev1.SchemeGroupVersion.WithKind("Pod"), action.GetNamespace())
	if err != nil {
		return nil, err
	}
	selected := &corev1.PodList{}
	for _, p := range all.(*corev1.PodList).Items {
		if selector.Matches(fieldsOf(&p)) {
			selected.Items = append(selected.Items, *p.DeepCopy())
		}
	}
	return selected, nil
}

func fieldsOf(p *corev1.Pod) fields.Set { return fields.Set{"spec.nodeName": p.Spec.NodeName} }

// watchPods starts a watch with a field selector. The watch starts with the current pods, because
// the fake clientset would lose changes between a list and the start of a watch.
func (b *bed) watchPods(action clienttesting.Action) (bool, watch.Interface, error) {
	selector := action.(clienttesting.WatchActionImpl).GetWatchRestrictions().Fields
	changes, err := b.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
	if err != nil {
		return true, nil, err
	}
	now, err := b.pods(action, selector)
	if err != nil {
		return true, nil, err
	}
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	go func() {
		defer changes.Stop()
		send := func(e watch.Event) {
			select {
			case events <- e:
			case <-proxy.StopChan():
			}
		}
		for i := range now.Items {
			send(watch.Event{Type: watch.Added, Object: &now.Items[i]})
		}
		for {
			select {
			case e := <-changes.ResultChan():
				if p, ok := e.Object.(*corev1.Pod); ok && selector.Matches(fieldsOf(p)) {
					send(e)
				}
			case <-proxy.StopChan():
				return
			}
		}
	}()
	b.podWatches.Add(1)
	return true, proxy, nil
}

// newClient is a clientFunc.
func (b *bed) newClient(c *rest.Config) (kubernetes.Interface, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.configs[c.UserAgent].QPS <= 0 { // the first client is the main client
		b.configs[c.UserAgent] = *c
	}
	return b.client, nil
}

// start runs the program until the test ends or stop is called.
func (b *bed) start(newClient clientFunc, args ...string) (stop func() error) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, append([]string{"--kubeconfig", b.kubeconfig}, args...), b.log, newClient) }()
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
	tick, end := time.NewTicker(50*time.Millisecond), time.After(2*time.Minute)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			require.Fail(b.t, "still not: "+what, b.log.String())
		}
	}
}

// count returns the number of ready nodes, of pods, and of ready pods.
func (b *bed) count() (nodes, pods, readyPods int) {
	b.t.Helper()
	allNodes, err := b.client.CoreV1().Nodes().List(b.t.Context(), metav1.ListOptions{})
	require.NoError(b.t, err)
	for _, n := range allNodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				nodes++
			}
		}
	}
	allPods, err := b.client.CoreV1().Pods("").List(b.t.Context(), metav1.ListOptions{})
	require.NoError(b.t, err)
	for _, p := range allPods.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.Status.Phase == corev1.PodRunning {
				readyPods++
			}
		}
	}
	return nodes, len(allPods.Items), readyPods
}

func (b *bed) create(p *corev1.Pod) {
	b.t.Helper()
	_, err := b.client.CoreV1().Pods(p.Namespace).Create(b.t.Context(), p, metav1.CreateOptions{})
	require.NoError(b.t, err)
}

func (b *bed) pod(name string) *corev1.Pod {
	b.t.Helper()
	p, err := b.client.CoreV1().Pods("default").Get(b.t.Context(), name, metav1.GetOptions{})
	require.NoError(b.t, err)
	return p
}

func TestRun_TwentyNodesRunPods(t *testing.T) {
	const nodes = 20
	b := newBed(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "config"}})
	stop := b.start(b.newClient, "--nodes=20", "--cpu=2", "--memory=4Gi", "--pods=30", "--node-labels=a=b", "--register-with-taints=c=d:NoSchedule")
	b.await("all nodes are ready", func() bool {
		ready, _, _ := b.count()
		return ready == nodes
	})
	for i := range nodes {
		b.create(demandingPod(fmt.Sprint("pod-", i), fmt.Sprint("hollow-", i)))
	}
	b.await("all pods are ready", func() bool {
		_, _, ready := b.count()
		return ready == nodes
	})
	b.requireNode("hollow-3")
	p := b.pod("pod-3")
	require.Equal(t, "198.18.0.4", p.Status.HostIP)
	require.True(t, strings.HasPrefix(p.Status.PodIP, "10.0.12."), p.Status.PodIP)
	require.Equal(t, int32(0), p.Status.InitContainerStatuses[0].State.Terminated.ExitCode)
	require.NotNil(t, p.Status.InitContainerStatuses[1].State.Running)
	require.Equal(t, "any.example/main:1.2.3", p.Status.ContainerStatuses[0].Image)
	require.Equal(t, demandingPod("pod-3", "hollow-3").Spec, p.Spec, "the pod of the API server must not be modified")

	b.await("all nodes watch their pods", func() bool { return b.podWatches.Load() >= nodes })
	for i := range nodes {
		require.NoError(t, b.client.CoreV1().Pods("default").Delete(t.Context(), fmt.Sprint("pod-", i), metav1.DeleteOptions{}))
	}
	b.await("all pods are gone", func() bool {
		_, pods, _ := b.count()
		return pods == 0
	})
	require.NoError(t, stop())
	left, err := os.ReadDir(b.temp)
	require.NoError(t, err)
	require.Empty(t, left, "the program removes its folder")
	ready, _, _ := b.count()
	require.Equal(t, nodes, ready, "the nodes stay")
}

// requireNode checks the node at the API server, and the configuration of its client.
func (b *bed) requireNode(name string) {
	b.t.Helper()
	n, err := b.client.CoreV1().Nodes().Get(b.t.Context(), name, metav1.GetOptions{})
	require.NoError(b.t, err)
	require.Equal(b.t, "b", n.Labels["a"])
	require.Equal(b.t, name, n.Labels[corev1.LabelHostname])
	require.Equal(b.t, []corev1.Taint{{Key: "c", Value: "d", Effect: corev1.TaintEffectNoSchedule}}, n.Spec.Taints)
	require.Equal(b.t, "2", n.Status.Capacity.Cpu().String())
	require.Equal(b.t, "4Gi", n.Status.Capacity.Memory().String())
	require.Equal(b.t, "3996Mi", n.Status.Allocatable.Memory().String(), "the hard eviction threshold is not allocatable")
	require.Equal(b.t, "30", n.Status.Capacity.Pods().String())
	require.Equal(b.t, name, n.Status.NodeInfo.SystemUUID)
	require.NotEqual(b.t, "fake", n.Status.NodeInfo.BootID)
	require.Equal(b.t, version, n.Status.NodeInfo.KubeletVersion)
	require.Zero(b.t, n.Status.DaemonEndpoints, "a hollow node does not serve the kubelet API")
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.configs["hollow-nodes/"+name]
	require.InDelta(b.t, 50, c.QPS, 0)
	require.Equal(b.t, 100, c.Burst)
	require.Equal(b.t, "https://api.test", c.Host)
	require.Equal(b.t, "application/vnd.kubernetes.protobuf", c.ContentType)
}

// A pod waits for its ConfigMap, as on any node. A job ends.
func TestRun_PodsWaitAndEnd(t *testing.T) {
	waiting := demandingPod("waiting", "hollow-0")
	job := demandingPod("job", "hollow-0")
	job.Spec.RestartPolicy, job.Spec.Volumes, job.Spec.Containers[0].VolumeMounts = corev1.RestartPolicyNever, nil, nil
	job.Spec.Containers[0].Command = []string{"sleep", "1"}
	b := newBed(t)
	b.create(waiting)
	b.create(job)
	b.start(b.newClient, "--v=4")
	b.await("the job has succeeded", func() bool { return b.pod("job").Status.Phase == corev1.PodSucceeded })
	require.Equal(t, corev1.PodPending, b.pod("waiting").Status.Phase)
	b.await("the debug log has a message of the node", func() bool { return strings.Contains(b.log.String(), "level=DEBUG") })
}

// After a restart of the program, the pods start again, as after a reboot of the node.
func TestRun_RestartStartsPodsAgain(t *testing.T) {
	b := newBed(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "config"}})
	b.create(demandingPod("p", "hollow-0"))
	ready := func() bool {
		_, _, pods := b.count()
		return pods == 1
	}
	stop := b.start(b.newClient)
	b.await("the pod is ready", ready)
	first := b.pod("p").Status.ContainerStatuses[0]
	require.NoError(t, stop())
	b.start(b.newClient)
	b.await("the pod has a new container and is ready", func() bool {
		return b.pod("p").Status.ContainerStatuses[0].ContainerID != first.ContainerID && ready()
	})
}

// A node whose API server can't be reached does not stop the other nodes.
func TestRun_AFailingNodeDoesNotStopOtherNodes(t *testing.T) {
	b := newBed(t)
	broken := fake.NewClientset()
	unreachable := func(clienttesting.Action) error { return errors.New("connection refused") }
	broken.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) { return true, nil, unreachable(a) })
	broken.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) { return true, nil, unreachable(a) })
	stop := b.start(func(c *rest.Config) (kubernetes.Interface, error) {
		if strings.HasSuffix(c.UserAgent, "/hollow-1") {
			return broken, nil
		}
		return b.client, nil
	}, "--nodes=3")
	b.await("two nodes are ready", func() bool {
		ready, _, _ := b.count()
		return ready == 2
	})
	b.await("the third node logs its error", func() bool { return strings.Contains(b.log.String(), "could not register the node") })
	require.NoError(t, stop())
}

func TestRunAll_ReportsNodesThatStop(t *testing.T) {
	b := newBed(t)
	o, err := parse([]string{"--kubeconfig", b.kubeconfig}, io.Discard)
	require.NoError(t, err)
	s := shared{options: o, credentials: &rest.Config{}, newClient: b.newClient, dir: b.temp, log: slog.New(slog.DiscardHandler)}
	n, err := s.newNode(0)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runAll(ctx, slog.New(slog.NewTextHandler(b.log, nil)), []*hollowNode{n, n}) }() // the second run of an agent fails
	b.await("one run has failed, the other runs", func() bool {
		ready, _, _ := b.count()
		return ready == 1 && strings.Contains(b.log.String(), "a hollow node has stopped")
	})
	stop()
	require.EqualError(t, <-done, "1 of 2 nodes have stopped with an error; the log has the errors")
}

func TestRun_ReportsErrors(t *testing.T) {
	b := newBed(t)
	require.ErrorContains(t, run(t.Context(), nil, b.log, b.newClient), "--kubeconfig is required")
	require.ErrorContains(t, run(t.Context(), []string{"--kubeconfig", "/none"}, b.log, b.newClient), "--kubeconfig: ")
	failing := func(*rest.Config) (kubernetes.Interface, error) { return nil, io.ErrUnexpectedEOF }
	err := run(t.Context(), []string{"--kubeconfig", b.kubeconfig}, b.log, failing)
	require.ErrorContains(t, err, "create node hollow-0: create a client of the API server: unexpected EOF")
	left, err := os.ReadDir(b.temp)
	require.NoError(t, err)
	require.Empty(t, left)
	t.Setenv("TMPDIR", "/none")
	require.ErrorContains(t, run(t.Context(), []string{"--kubeconfig", b.kubeconfig}, b.log, b.newClient), "create the folder")
}

package status_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

var podResource = schema.GroupResource{Resource: "pods"}

// api is an API server's pods: versions, preconditions, strategic merge patches,
// and faults by script.
type api struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	version int
	calls   []string // the calls in order, such as "patch pod"
	flying  int
	most    int // the maximum number of concurrent calls

	latency time.Duration
	// before and after run before and after each call, without the lock. An error that
	// they return is the result of the call.
	before, after func(ctx context.Context, verb, name string) error
	// wrote is called for every stored version.
	wrote func(old, next *corev1.Pod)
}

func newAPI(pods ...*corev1.Pod) *api {
	a := &api{pods: map[string]*corev1.Pod{}}
	for _, pod := range pods {
		a.put(pod)
	}
	return a
}

// put stores a pod and returns the object that a watch would return.
func (a *api) put(pod *corev1.Pod) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.store(pod)
}

func (a *api) store(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	a.version++
	pod.ResourceVersion = strconv.Itoa(a.version)
	a.pods[pod.Namespace+"/"+pod.Name] = pod
	return pod.DeepCopy()
}

func (a *api) pod(name string) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods["ns/"+name].DeepCopy()
}

// edit makes a change of another writer.
func (a *api) edit(name string, fn func(*corev1.Pod)) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.pods["ns/"+name].DeepCopy()
	fn(pod)
	return a.store(pod)
}

func (a *api) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, "ns/"+name)
}

// asked returns the calls since the last call of asked.
func (a *api) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls
	a.calls = nil
	return calls
}

func (a *api) call(ctx context.Context, verb, namespace, name string, do func(key string) (*corev1.Pod, error)) (*corev1.Pod, error) {
	a.mu.Lock()
	a.calls = append(a.calls, verb+" "+name)
	a.flying++
	a.most = max(a.most, a.flying)
	before, after := a.before, a.after
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.flying--
	}()
	if a.latency > 0 {
		select {
		case <-time.After(a.latency):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if before != nil {
		if err := before(ctx, verb, name); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	pod, err := do(namespace + "/" + name)
	a.mu.Unlock()
	if err == nil && after != nil {
		err = after(ctx, verb, name)
	}
	if err != nil {
		return nil, err
	}
	return pod.DeepCopy(), nil
}

func (a *api) Pods(namespace string) status.PodClient { return apiPods{a, namespace} }

type apiPods struct {
	*api
	namespace string
}

func (p apiPods) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	return p.call(ctx, "get", p.namespace, name, func(key string) (*corev1.Pod, error) { return p.find(key, name) })
}

func (a *api) find(key, name string) (*corev1.Pod, error) {
	if pod := a.pods[key]; pod != nil {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(podResource, name)
}

func (p apiPods) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	_, err := p.call(ctx, "delete", p.namespace, name, func(key string) (*corev1.Pod, error) {
		pod, err := p.find(key, name)
		if err == nil && (opts.Preconditions == nil || *opts.Preconditions.UID != pod.UID || *opts.GracePeriodSeconds != 0) {
			err = apierrors.NewConflict(podResource, name, nil)
		}
		if err == nil {
			delete(p.pods, key)
		}
		return pod, err
	})
	return err
}

func (p apiPods) Patch(
	ctx context.Context, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string,
) (*corev1.Pod, error) {
	return p.call(ctx, "patch", p.namespace, name, func(key string) (*corev1.Pod, error) {
		pod, err := p.find(key, name)
		if err != nil {
			return nil, err
		}
		if pt != types.StrategicMergePatchType || len(subresources) != 1 || subresources[0] != "status" {
			return nil, apierrors.NewBadRequest("not a status patch")
		}
		next, err := patched(pod, data)
		switch {
		case err != nil:
			return nil, apierrors.NewBadRequest(err.Error())
		case next.UID != pod.UID, next.ResourceVersion != pod.ResourceVersion:
			return nil, apierrors.NewConflict(podResource, name, nil)
		case podspec.IsTerminal(pod.Status.Phase) && next.Status.Phase != pod.Status.Phase:
			return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, nil)
		}
		p.version++
		next.ResourceVersion = strconv.Itoa(p.version)
		p.pods[key] = next
		if p.wrote != nil {
			p.wrote(pod, next)
		}
		return next, nil
	})
}

// patched applies a strategic merge patch as an API server does.
func patched(pod *corev1.Pod, patch []byte) (*corev1.Pod, error) {
	body, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	if body, err = strategicpatch.StrategicMergePatch(body, patch, corev1.Pod{}); err != nil {
		return nil, err
	}
	var next corev1.Pod
	return &next, json.Unmarshal(body, &next)
}

// ServeHTTP implements the HTTP API.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	pods, name := a.Pods(parts[0]), parts[2]
	var pod *corev1.Pod
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
	case r.Method == http.MethodGet:
		pod, err = pods.Get(r.Context(), name, metav1.GetOptions{})
	case r.Method == http.MethodPatch:
		pod, err = pods.Patch(r.Context(), name, types.PatchType(r.Header.Get("Content-Type")), body, metav1.PatchOptions{}, parts[3:]...)
	case r.Method == http.MethodDelete:
		var opts metav1.DeleteOptions
		if err = json.Unmarshal(body, &opts); err == nil {
			err = pods.Delete(r.Context(), name, opts)
		}
		pod = &corev1.Pod{}
	}
	var answer any = pod
	if err != nil {
		answer = &metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()}
		if s, ok := err.(apierrors.APIStatus); ok {
			failure := s.Status()
			answer = &failure
		}
		w.WriteHeader(int(answer.(*metav1.Status).Code))
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// remotePods is a client of the HTTP API that behaves like client-go's pod client.
type remotePods struct {
	http *http.Client
	url  string
}

func (p remotePods) do(ctx context.Context, method, path, kind string, body []byte) (*corev1.Pod, error) {
	request, err := http.NewRequestWithContext(ctx, method, p.url+"/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", kind)
	answer, err := p.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		var failure metav1.Status
		if err := json.NewDecoder(answer.Body).Decode(&failure); err != nil {
			return nil, err
		}
		return nil, &apierrors.StatusError{ErrStatus: failure}
	}
	var pod corev1.Pod
	return &pod, json.NewDecoder(answer.Body).Decode(&pod)
}

func (p remotePods) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	return p.do(ctx, http.MethodGet, name, "application/json", nil)
}

func (p remotePods) Patch(
	ctx context.Context, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string,
) (*corev1.Pod, error) {
	return p.do(ctx, http.MethodPatch, strings.Join(append([]string{name}, subresources...), "/"), string(pt), data)
}

func (p remotePods) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	body, err := json.Marshal(opts)
	if err != nil {
		return err
	}
	_, err = p.do(ctx, http.MethodDelete, name, "application/json", body)
	return err
}

// node is a manager with a publisher to an API server, and the recorded callbacks.
type node struct {
	*status.Manager
	*status.Publisher
	api  *api
	sink *status.APIServer

	mu        sync.Mutex
	published []status.Publication
	failed    []error
	bytes     int
	mayRun    map[types.UID]bool
	mirrors   map[types.UID]*corev1.Pod
}

func newNode(tb testing.TB, a *api, edits ...func(*status.PublisherConfig)) *node {
	tb.Helper()
	n := &node{api: a, mayRun: map[types.UID]bool{}, mirrors: map[types.UID]*corev1.Pod{}}
	var err error
	n.Manager, err = status.New(status.Config{})
	require.NoError(tb, err)
	n.sink, err = status.NewAPIServer(status.APIServerConfig{
		Pods: a.Pods,
		Mirror: func(pod *corev1.Pod) (*corev1.Pod, bool) {
			mirror, ok := n.mirrors[pod.UID]
			return mirror, ok
		},
		MayRun: func(uid types.UID) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.mayRun[uid]
		},
		Called: func(c status.Call) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.bytes += c.Bytes
		},
	})
	require.NoError(tb, err)
	cfg := status.PublisherConfig{
		Statuses: n.Manager, Sink: n.sink, Random: func() float64 { return 0 },
		Observer: status.PublisherObserver{
			Published: func(p status.Publication) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.published = append(n.published, p)
			},
			Failed: func(_ *corev1.Pod, err error, _ time.Duration) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.failed = append(n.failed, err)
			},
		},
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	n.Publisher, err = status.NewPublisher(cfg)
	require.NoError(tb, err)
	return n
}

// start runs the publisher until the test ends.
func (n *node) start(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		require.NoError(tb, <-done)
	})
}

// numbered returns n pods as they are after their creation in an API server.
func numbered(n int) (pods []*corev1.Pod) {
	for i := range n {
		name := fmt.Sprint("p", i)
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
			Status:     corev1.PodStatus{Phase: corev1.PodPending},
		})
	}
	return pods
}

package status

import (
	"context"
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// apiServer keeps pods by name.
type apiServer struct {
	kubernetes.Interface
	pods    map[string]*corev1.Pod
	version int
	fail    string         // the verb whose calls fail
	calls   map[string]int // successful changes by verb and pod
}

func newAPIServer() *apiServer {
	return &apiServer{pods: map[string]*corev1.Pod{}, calls: map[string]int{}}
}

// put stores a pod as another client would.
func (a *apiServer) put(pod *corev1.Pod) *corev1.Pod {
	a.version++
	pod = stored(pod)
	pod.ResourceVersion = strconv.Itoa(a.version)
	a.pods[pod.Name] = pod
	return pod
}

func (a *apiServer) CoreV1() typedcorev1.CoreV1Interface { return core{api: a} }

type core struct {
	typedcorev1.CoreV1Interface
	api *apiServer
}

func (c core) Pods(string) typedcorev1.PodInterface { return podClient{api: c.api} }

// podClient is the client of both sides.
type podClient struct {
	typedcorev1.PodInterface
	api *apiServer
}

func (c podClient) find(verb, name string) (*corev1.Pod, error) {
	if c.api.fail == verb {
		return nil, apierrors.NewInternalError(context.DeadlineExceeded)
	}
	pod := c.api.pods[name]
	if pod == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	return pod.DeepCopy(), nil
}

func (c podClient) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	return c.find("get", name)
}

func (c podClient) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	pod, err := c.find("patch", name)
	if err != nil {
		return nil, err
	}
	var precondition corev1.Pod
	if err := json.Unmarshal(data, &precondition); err != nil {
		return nil, err
	}
	if precondition.UID != pod.UID || precondition.ResourceVersion != "" && precondition.ResourceVersion != pod.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, context.Canceled)
	}
	pod, err = patched(pod, data)
	if err != nil {
		return nil, err
	}
	c.api.calls["patch "+name]++
	return c.api.put(pod).DeepCopy(), nil
}

func (c podClient) Delete(_ context.Context, name string, opts metav1.DeleteOptions) error {
	pod, err := c.find("delete", name)
	if err != nil {
		return err
	}
	if opts.Preconditions == nil || *opts.Preconditions.UID != pod.UID || *opts.GracePeriodSeconds != 0 {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, context.Canceled)
	}
	c.api.calls["delete "+name]++
	delete(c.api.pods, name)
	return nil
}

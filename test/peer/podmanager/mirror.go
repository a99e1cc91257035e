package podmanager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A mirrorWorld is a history of calls of a mirror client.
type mirrorWorld struct{ Steps []mirrorCall }

// A mirrorCall creates the mirror of a pod or deletes one.
type mirrorCall struct {
	Delete bool
	Pod    *corev1.Pod
	// There holds the pod with that name in the API server before the call. Nil means that
	// the API server has no such pod.
	There *corev1.Pod
	Node  *corev1.Node // nil if the lookup fails
	// Silent is set if the failed lookup of the node returns no error.
	Silent bool
	// Fails is the request that fails: "create", "delete" or "get"; or "lost" if the pod is
	// removed between two requests.
	Fails string
}

func (w *mirrorWorld) String() string {
	var b strings.Builder
	for i, s := range w.Steps {
		fmt.Fprintf(&b, "step %d: delete %t, fails %q, node %t\n    pod %s %v\n", i, s.Delete, s.Fails, s.Node != nil, s.Pod.UID, s.Pod.Annotations)
		if s.There != nil {
			fmt.Fprintf(&b, "    there %s %v deleting %t\n", s.There.UID, s.There.Annotations, s.There.DeletionTimestamp != nil)
		}
	}
	return b.String()
}

func newMirrorWorld(d *judge.Draw) *mirrorWorld {
	w := &mirrorWorld{}
	for range d.Between(1, 3) {
		s := mirrorCall{Delete: d.Chance(40), Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}}}
		s.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "u1", ResourceVersion: judge.Pick(d, "", "7")}}
		s.Pod.Annotations = map[string]string{sourceAnnotation: judge.Pick(d, "file", "file", "file", "api"), hashAnnotation: judge.Pick(d, "h1", "h1", "h2", "")}
		if s.Delete || d.Chance(5) {
			s.Pod.UID = judge.Pick(d, types.UID("m1"), "m2", "m1", "")
			s.Pod.Annotations[mirrorAnnotation] = judge.Pick(d, "h1", "")
		}
		if s.Delete && d.Chance(10) {
			delete(s.Pod.Annotations, mirrorAnnotation)
		}
		if s.Delete || d.Chance(40) {
			s.There = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: judge.Pick(d, types.UID("m1"), "m1", "m2")}}
			if !d.Chance(15) {
				s.There.Annotations = map[string]string{mirrorAnnotation: judge.Pick(d, "h1", "h2")}
			}
			if d.Chance(15) {
				s.There.DeletionTimestamp = &metav1.Time{}
			}
		}
		if s.Delete && d.Chance(15) {
			s.There = nil
		}
		switch {
		case d.Chance(8):
			s.Node, s.Silent = nil, d.Chance(50)
		case d.Chance(8):
			s.Node.UID = ""
		case d.Chance(8):
			s.Node.DeletionTimestamp = &metav1.Time{}
		}
		if d.Chance(15) {
			s.Fails = judge.Pick(d, "create", "delete", "get", "lost")
		}
		w.Steps = append(w.Steps, s)
	}
	return w
}

// An api is a client of an API server that has at most one pod.
type api struct {
	kubernetes.Interface
	corev1client.CoreV1Interface
	corev1client.PodInterface
	call  mirrorCall
	facts judge.Facts
}

func (a *api) CoreV1() corev1client.CoreV1Interface            { return a }
func (a *api) Pods(namespace string) corev1client.PodInterface { return a }

func (a *api) fail(verb string) error {
	if a.call.Fails == verb {
		return errors.New("the server is down")
	}
	return nil
}

func (a *api) Create(_ context.Context, pod *corev1.Pod, _ metav1.CreateOptions) (*corev1.Pod, error) {
	a.facts["created"] = pod.Namespace + "/" + pod.Name
	for key, value := range pod.Annotations {
		a.facts["created annotation "+key] = value
	}
	a.facts["created owners"] = fmt.Sprintf("%+v", owners(pod))
	a.facts["created UID"], a.facts["created resource version"] = string(pod.UID), pod.ResourceVersion
	switch err := a.fail("create"); {
	case err != nil:
		return &corev1.Pod{}, err
	case a.call.There != nil:
		return &corev1.Pod{}, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, pod.Name)
	}
	a.call.There = pod
	return pod, nil
}

func owners(pod *corev1.Pod) (all []string) {
	for _, o := range pod.OwnerReferences {
		all = append(all, fmt.Sprintf("%s %s %s %s controller=%t block=%v", o.APIVersion, o.Kind, o.Name, o.UID, *o.Controller, o.BlockOwnerDeletion))
	}
	return all
}

func (a *api) Get(context.Context, string, metav1.GetOptions) (*corev1.Pod, error) {
	if err := a.fail("get"); err != nil {
		return nil, err
	}
	if a.call.Fails == "lost" {
		return nil, nil
	}
	return a.call.There, nil
}

func (a *api) Delete(_ context.Context, name string, opts metav1.DeleteOptions) error {
	a.facts["deleted"] = name
	a.facts["deleted with grace"] = fmt.Sprint(*opts.GracePeriodSeconds)
	precondition := "none"
	if opts.Preconditions != nil && opts.Preconditions.UID != nil {
		precondition = "is " + string(*opts.Preconditions.UID)
	}
	a.facts["deleted if UID"] = precondition
	resource := schema.GroupResource{Resource: "pods"}
	switch err := a.fail("delete"); {
	case err != nil:
		return err
	case a.call.There == nil:
		return apierrors.NewNotFound(resource, name)
	case precondition != "none" && precondition != "is "+string(a.call.There.UID):
		return apierrors.NewConflict(resource, name, errors.New("the UID is another"))
	}
	a.call.There = nil
	return nil
}

func (a *api) node() (*corev1.Node, error) {
	if a.call.Node == nil {
		return nil, errors.New("no node")
	}
	return a.call.Node, nil
}

type nodeGetter struct{ *api }

func (g nodeGetter) Get(string) (*corev1.Node, error) { return g.node() }

func kubeletMirror(t *testing.T, w *mirrorWorld) (all []judge.Facts) {
	t.Helper()
	for _, s := range w.Steps {
		a := &api{call: s, facts: judge.Facts{}}
		client := kubeletpod.NewBasicMirrorClient(a, "node", nodeGetter{a})
		if s.Delete {
			uid := s.Pod.UID
			deleted, err := client.DeleteMirrorPod(t.Context(), s.Pod.Name+"_"+s.Pod.Namespace, &uid)
			require.NoError(t, err)
			a.facts["gone"] = fmt.Sprint(deleted || a.call.There == nil || a.call.There.UID != uid)
			a.facts["error"] = "no"
		} else {
			a.facts["error"] = yesNo(client.CreateMirrorPod(t.Context(), s.Pod) != nil)
		}
		a.facts["text"] = s.text() // the kubelet's texts differ
		all = append(all, a.facts)
	}
	return all
}

func ourMirror(t *testing.T, w *mirrorWorld) (all []judge.Facts) {
	t.Helper()
	_, err := podmanager.NewMirrorClient(podmanager.MirrorConfig{})
	require.EqualError(t, err, "podmanager: invalid config: field Pods is required\nfield Node is required")
	for _, s := range w.Steps {
		a := &api{call: s, facts: judge.Facts{}}
		client, err := podmanager.NewMirrorClient(podmanager.MirrorConfig{
			Pods: func(string) podmanager.PodClient { return a },
			Node: func(context.Context) (*corev1.Node, error) {
				if s.Silent {
					return nil, nil
				}
				return a.node()
			},
		})
		require.NoError(t, err)
		before := s.Pod.DeepCopy()
		if s.Delete {
			err = client.Delete(t.Context(), s.Pod)
			a.facts["gone"] = fmt.Sprint(a.call.There == nil || a.call.There.UID != s.Pod.UID)
		} else {
			err = client.Create(t.Context(), s.Pod)
		}
		require.Equal(t, before, s.Pod, "the call modified the pod")
		if a.facts["error"] = yesNo(err != nil); err != nil {
			a.facts["text"] = err.Error()
		}
		all = append(all, a.facts)
	}
	return all
}

// text returns the expected error of our client, according to its documentation.
func (s mirrorCall) text() string {
	if s.Delete {
		prefix := "delete mirror pod ns/a: "
		switch {
		case !isMirror(s.Pod):
			return prefix + "the pod is not a mirror"
		case s.Pod.UID == "":
			return prefix + "the pod has no UID"
		case s.Fails == "delete":
			return prefix + "the server is down"
		}
		return ""
	}
	if why := s.refused(); why != "" {
		return "create mirror of pod ns/a: " + why
	}
	return ""
}

// refused returns the reason for which no mirror pod can be created.
func (s mirrorCall) refused() string {
	const exists = `pods "a" already exists`
	switch {
	case !isStatic(s.Pod) || isMirror(s.Pod):
		return "the pod is not static"
	case s.Pod.Annotations[hashAnnotation] == "":
		return "the pod has no annotation " + hashAnnotation
	case s.Node == nil && !s.Silent:
		return "get node: no node"
	case s.Node == nil || s.Node.UID == "":
		return "the node has no UID yet"
	case s.Node.DeletionTimestamp != nil:
		return "node node is being deleted"
	case s.Fails == "create":
		return "the server is down"
	case s.There == nil:
		return ""
	case s.Fails == "get":
		return exists + "\nget the existing pod: the server is down"
	case s.Fails == "lost":
		return exists
	case s.There.DeletionTimestamp == nil && s.There.Annotations[mirrorAnnotation] == s.Pod.Annotations[hashAnnotation]:
		return ""
	case isMirror(s.There):
		return "an older mirror pod with UID " + string(s.There.UID) + " still exists: " + exists
	}
	return "the pod with this name, UID " + string(s.There.UID) + ", is not a mirror: " + exists
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

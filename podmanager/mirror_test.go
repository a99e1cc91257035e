package podmanager_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager"
)

// podInterface has methods of client-go's typed pod client with the same signatures,
// including methods that this package does not call.
type podInterface interface {
	Create(ctx context.Context, pod *corev1.Pod, opts metav1.CreateOptions) (*corev1.Pod, error)
	Update(ctx context.Context, pod *corev1.Pod, opts metav1.UpdateOptions) (*corev1.Pod, error)
	UpdateStatus(ctx context.Context, pod *corev1.Pod, opts metav1.UpdateOptions) (*corev1.Pod, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, opts metav1.DeleteOptions, listOpts metav1.ListOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
	List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (result *corev1.Pod, err error)
}

// client-go's clientset needs one closure, because its method Pods returns another type.
func _(clientset interface {
	Pods(namespace string) podInterface
},
) podmanager.MirrorConfig {
	return podmanager.MirrorConfig{
		Pods: func(ns string) podmanager.PodClient { return clientset.Pods(ns) },
	}
}

// apiServer stores the pods of one namespace, and responds like a real API server.
type apiServer struct {
	pods  map[string]*corev1.Pod
	calls []string
	fail  map[string]error // by verb
	uids  int
}

func newAPIServer(pods ...*corev1.Pod) *apiServer {
	s := &apiServer{pods: map[string]*corev1.Pod{}, fail: map[string]error{}}
	for _, pod := range pods {
		s.pods[pod.Name] = pod
	}
	return s
}

func resource() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

func (s *apiServer) called(verb, name string) error {
	s.calls = append(s.calls, verb+" "+name)
	return s.fail[verb]
}

func (s *apiServer) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	if err := s.called("get", name); err != nil {
		return nil, err
	}
	if pod := s.pods[name]; pod != nil {
		return pod, nil
	}
	return &corev1.Pod{}, apierrors.NewNotFound(resource(), name)
}

func (s *apiServer) Create(_ context.Context, pod *corev1.Pod, _ metav1.CreateOptions) (*corev1.Pod, error) {
	if err := s.called("create", pod.Name); err != nil {
		return &corev1.Pod{}, err
	}
	if s.pods[pod.Name] != nil {
		return &corev1.Pod{}, apierrors.NewAlreadyExists(resource(), pod.Name)
	}
	s.uids++
	made := pod.DeepCopy()
	made.UID = types.UID(fmt.Sprintf("made-%d", s.uids))
	s.pods[pod.Name] = made
	return made, nil
}

func (s *apiServer) Delete(_ context.Context, name string, opts metav1.DeleteOptions) error {
	if err := s.called("delete", name); err != nil {
		return err
	}
	pod := s.pods[name]
	switch {
	case pod == nil:
		return apierrors.NewNotFound(resource(), name)
	case opts.Preconditions == nil || *opts.Preconditions.UID != pod.UID:
		return apierrors.NewConflict(resource(), name, errors.New("the UID in the precondition is another"))
	case opts.GracePeriodSeconds == nil || *opts.GracePeriodSeconds != 0:
		return errors.New("a mirror has no grace")
	}
	delete(s.pods, name)
	return nil
}

func node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}
}

func (s *apiServer) client(t *testing.T) *podmanager.MirrorClient {
	t.Helper()
	return s.clientOn(t, node(), nil)
}

func (s *apiServer) clientOn(t *testing.T, node *corev1.Node, err error) *podmanager.MirrorClient {
	t.Helper()
	c, newErr := podmanager.NewMirrorClient(podmanager.MirrorConfig{
		Pods: func(ns string) podmanager.PodClient {
			require.Equal(t, "default", ns)
			return s
		},
		Node: func(context.Context) (*corev1.Node, error) { return node, err },
	})
	require.NoError(t, newErr)
	return c
}

func TestMirrorConfig_ValidateReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := podmanager.NewMirrorClient(podmanager.MirrorConfig{})
	require.ErrorContains(t, err, "podmanager: invalid config")
	require.ErrorContains(t, err, "field Pods is required")
	require.ErrorContains(t, err, "field Node is required")
}

func TestMirrorClient_CreateSetsHashAndOwner(t *testing.T) {
	t.Parallel()
	s, static := newAPIServer(), staticPod("web-n1", "u1")
	before := static.DeepCopy()
	require.NoError(t, s.client(t).Create(t.Context(), static))
	require.Equal(t, before, static, "the pod must not be modified")
	mirror := s.pods["web-n1"]
	require.Equal(t, map[string]string{
		podspec.SourceAnnotation: "file", podspec.HashAnnotation: "u1", podspec.MirrorAnnotation: "u1",
	}, mirror.Annotations)
	require.Equal(t, []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node-uid", Controller: new(true)},
	}, mirror.OwnerReferences)
	require.True(t, podmanager.Mirrors(mirror, static))
	require.EqualValues(t, "made-1", mirror.UID)
}

func TestMirrorClient_CreateRequiresAnOwner(t *testing.T) {
	t.Parallel()
	deleting := node()
	deleting.DeletionTimestamp = &metav1.Time{}
	for name, c := range map[string]struct {
		node *corev1.Node
		err  error
		want string
	}{
		"node not found":  {nil, errors.New("boom"), "get node: boom"},
		"no node":         {nil, nil, "the node has no UID yet"},
		"not registered":  {&corev1.Node{}, nil, "the node has no UID yet"},
		"node going away": {deleting, nil, "node n1 is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer()
			err := s.clientOn(t, c.node, c.err).Create(t.Context(), staticPod("web-n1", "u1"))
			require.EqualError(t, err, "create mirror of pod default/web-n1: "+c.want)
			require.Empty(t, s.calls)
		})
	}
}

func TestMirrorClient_CreateRefusesOtherPods(t *testing.T) {
	t.Parallel()
	unhashed := staticPod("web-n1", "u1")
	delete(unhashed.Annotations, podspec.HashAnnotation)
	s := newAPIServer()
	require.ErrorContains(t, s.client(t).Create(t.Context(), apiPod("a", "u")), "the pod is not static")
	require.ErrorContains(t, s.client(t).Create(t.Context(), mirrorPod("a", "u", "h")), "the pod is not static")
	require.ErrorContains(t, s.client(t).Create(t.Context(), unhashed), "the pod has no annotation kubernetes.io/config.hash")
	require.Empty(t, s.calls)
}

func TestMirrorClient_CreateWithExistingPod(t *testing.T) {
	t.Parallel()
	deleting := mirrorPod("web-n1", "m1", "u1")
	deleting.DeletionTimestamp = &metav1.Time{}
	for name, c := range map[string]struct {
		there *corev1.Pod
		want  string
	}{
		"by the mirror":                {mirrorPod("web-n1", "m1", "u1"), ""},
		"by an older mirror":           {mirrorPod("web-n1", "m1", "u0"), "an older mirror pod with UID m1 still exists"},
		"by the mirror, going":         {deleting, "an older mirror pod with UID m1 still exists"},
		"by a pod that is no mirror":   {apiPod("web-n1", "u9"), "the pod with this name, UID u9, is not a mirror"},
		"by a mirror without any hash": {mirrorPod("web-n1", "m1", ""), "an older mirror pod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(c.there)
			err := s.client(t).Create(t.Context(), staticPod("web-n1", "u1"))
			require.Equal(t, []string{"create web-n1", "get web-n1"}, s.calls)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.True(t, apierrors.IsAlreadyExists(errors.Unwrap(errors.Unwrap(err))))
		})
	}
	s := newAPIServer(mirrorPod("web-n1", "m1", "u1"))
	s.fail["get"] = errors.New("boom")
	require.ErrorContains(t, s.client(t).Create(t.Context(), staticPod("web-n1", "u1")), "get the existing pod: boom")
}

func TestMirrorClient_DeleteUsesTheUID(t *testing.T) {
	t.Parallel()
	s := newAPIServer(mirrorPod("web-n1", "m2", "u1"))
	c := s.client(t)
	require.NoError(t, c.Delete(t.Context(), mirrorPod("web-n1", "m1", "u1")), "deleting a mirror pod with another UID must succeed")
	require.Len(t, s.pods, 1)
	require.NoError(t, c.Delete(t.Context(), mirrorPod("web-n1", "m2", "u1")))
	require.Empty(t, s.pods)
	require.NoError(t, c.Delete(t.Context(), mirrorPod("web-n1", "m2", "u1")), "deleting a deleted mirror pod must succeed")

	s.fail["delete"] = errors.New("boom")
	require.EqualError(t, c.Delete(t.Context(), mirrorPod("web-n1", "m2", "u1")), "delete mirror pod default/web-n1: boom")
	require.ErrorContains(t, c.Delete(t.Context(), staticPod("web-n1", "u1")), "the pod is not a mirror")
	require.ErrorContains(t, c.Delete(t.Context(), mirrorPod("web-n1", "", "u1")), "the pod has no UID")
}

func TestPlanMirrors(t *testing.T) {
	t.Parallel()
	deleting := mirrorPod("a-n1", "m1", "u1")
	deleting.DeletionTimestamp = &metav1.Time{}
	finished := staticPod("a-n1", "u1")
	finished.Status.Phase = corev1.PodSucceeded
	unhashed := staticPod("a-n1", "u1")
	delete(unhashed.Annotations, podspec.HashAnnotation)
	one := func(pod *corev1.Pod) []*corev1.Pod { return []*corev1.Pod{pod} }
	for name, c := range map[string]struct {
		pods, mirrors []*corev1.Pod
		want          []string
	}{
		"nothing":              {nil, nil, nil},
		"pods of the cluster":  {one(apiPod("a", "u1")), nil, nil},
		"missing":              {one(staticPod("a-n1", "u1")), nil, []string{"create u1: " + podmanager.MirrorMissing}},
		"missing, pod is done": {one(finished), nil, []string{"create u1: " + podmanager.MirrorMissing}},
		"there":                {one(staticPod("a-n1", "u1")), one(mirrorPod("a-n1", "m1", "u1")), nil},
		"of another version":   {one(staticPod("a-n1", "u1")), one(mirrorPod("a-n1", "m1", "u0")), []string{"delete m1, create u1: " + podmanager.MirrorOutdated}},
		"going":                {one(staticPod("a-n1", "u1")), one(deleting), []string{"delete m1, create u1: " + podmanager.MirrorDeleted}},
		"no hash to compare":   {one(unhashed), one(mirrorPod("a-n1", "m1", "u0")), nil},
		"missing, no hash":     {one(unhashed), nil, nil},
		"going, no hash":       {one(unhashed), one(deleting), []string{"delete m1: " + podmanager.MirrorDeleted}},
		"orphan":               {nil, one(mirrorPod("a-n1", "m1", "u0")), []string{"delete m1: " + podmanager.MirrorOrphaned}},
		"orphan that stays":    {nil, one(mirrorPod("kept-n1", "m1", "u0")), nil},
		"name of another pod":  {one(apiPod("a-n1", "u1")), one(mirrorPod("a-n1", "m1", "u0")), []string{"delete m1: " + podmanager.MirrorOrphaned}},
		"predecessor": {
			[]*corev1.Pod{staticPod("a-n1", "u1"), staticPod("a-n1", "u2")},
			one(mirrorPod("a-n1", "m2", "u2")), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := podmanager.PlanMirrors(c.pods, c.mirrors, func(m *corev1.Pod) bool { return m.Name == "kept-n1" })
			var got []string
			for _, action := range plan {
				got = append(got, describe(action))
			}
			require.Equal(t, c.want, got)
		})
	}
	require.Len(t, podmanager.PlanMirrors(nil, one(mirrorPod("kept-n1", "m1", "h")), nil), 1)
}

func describe(a podmanager.MirrorAction) string {
	switch {
	case a.Delete == nil:
		return fmt.Sprintf("create %s: %s", a.Create.UID, a.Reason)
	case a.Create == nil:
		return fmt.Sprintf("delete %s: %s", a.Delete.UID, a.Reason)
	default:
		return fmt.Sprintf("delete %s, create %s: %s", a.Delete.UID, a.Create.UID, a.Reason)
	}
}

func TestMirrorClient_ApplyContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	s.fail["delete"] = errors.New("boom")
	err := s.client(t).Apply(t.Context(), []podmanager.MirrorAction{
		{Delete: mirrorPod("a-n1", "m1", "u0"), Create: staticPod("a-n1", "u1")},
		{Create: staticPod("b-n1", "u2")},
	})
	require.EqualError(t, err, "delete mirror pod default/a-n1: boom")
	require.Equal(t, []string{"delete a-n1", "create b-n1"}, s.calls)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.client(t).Apply(ctx, []podmanager.MirrorAction{{Create: staticPod("c-n1", "u3")}}), context.Canceled)
	require.Len(t, s.calls, 2)
}

// For any pods in the API server, even if the Manager is outdated, applying plans results in
// one correct mirror pod for each static pod and in no other mirror pods. Other pods do not
// change.
func TestPlanMirrors_Converges(t *testing.T) {
	t.Parallel()
	for run := range 200 {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("run %d seed %d", run, seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 0))
			s, m := newAPIServer(), podmanager.New()
			for i := range 4 {
				name := fmt.Sprintf("p%d", i)
				if rnd.IntN(2) == 0 {
					m.AddPod(staticPod(name, fmt.Sprintf("u%d", i)))
				}
				if rnd.IntN(2) == 0 { // the mirrors in the Manager may be outdated
					m.AddPod(mirrorPod(name, fmt.Sprintf("m%d-%d", i, rnd.IntN(2)), fmt.Sprintf("u%d", rnd.IntN(4))))
				}
				if rnd.IntN(2) == 0 {
					s.pods[name] = mirrorPod(name, fmt.Sprintf("m%d-%d", i, rnd.IntN(2)), fmt.Sprintf("u%d", rnd.IntN(4)))
				}
			}
			s.pods["bystander"] = apiPod("bystander", "x")
			for range 3 {
				pods, mirrors, _ := m.GetPodsAndMirrorPods()
				// Apply returns an error once if a pod that the Manager does not contain has the name
				// of a mirror.
				_ = s.client(t).Apply(t.Context(), podmanager.PlanMirrors(pods, mirrors, nil))
				fresh := slices.Clip(pods)
				for _, pod := range s.pods {
					fresh = append(fresh, pod)
				}
				m.SetPods(fresh)
			}
			statics := m.GetStaticPodToMirrorPodMap()
			require.Len(t, s.pods, len(statics)+1)
			for static := range statics {
				require.True(t, podmanager.Mirrors(s.pods[static.Name], static))
			}
		})
	}
}

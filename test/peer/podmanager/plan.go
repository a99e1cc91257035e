package podmanager

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

//go:linkname tryReconcileMirrorPods k8s.io/kubernetes/pkg/kubelet.(*Kubelet).tryReconcileMirrorPods
func tryReconcileMirrorPods(kl *kubelet.Kubelet, ctx context.Context, static, mirror *corev1.Pod)

// A planWorld is the pods and mirror pods in the agent, and the pods in the API server.
type planWorld struct {
	Pods, Mirrors []*corev1.Pod // in the agent, in the order of additions
	There         []*corev1.Pod // in the API server
	Ending        []string      // names of mirrors whose pods are still terminating
	Node          *corev1.Node  // nil if the lookup fails
	Fails         map[string]string
}

func (w *planWorld) String() string {
	var b strings.Builder
	for _, list := range []struct {
		name string
		pods []*corev1.Pod
	}{{"pods", w.Pods}, {"mirrors", w.Mirrors}, {"there", w.There}} {
		fmt.Fprintln(&b, list.name)
		for _, pod := range list.pods {
			fmt.Fprintf(&b, "    %s/%s %q %v deleting %t\n", pod.Namespace, pod.Name, pod.UID, pod.Annotations, pod.DeletionTimestamp != nil)
		}
	}
	fmt.Fprintf(&b, "ending %v, node %v, fails %v", w.Ending, w.Node != nil, w.Fails)
	return b.String()
}

func newPlanWorld(d *judge.Draw) *planWorld {
	w := &planWorld{Fails: map[string]string{}, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}}}
	for i := range d.Between(0, 5) {
		name := judge.Pick(d, "a", "b", "c")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: judge.Pick(d, "ns", "ns", "ns", "other"), UID: types.UID(fmt.Sprintf("u%d", i))}}
		pod.Annotations = map[string]string{sourceAnnotation: judge.Pick(d, "file", "http", "file", "file", "api"), hashAnnotation: judge.Pick(d, "h1", "h2", "h1", "")}
		if w.has(w.Pods, pod) && !d.Chance(30) {
			continue
		}
		w.Pods = append(w.Pods, pod)
	}
	for i := range d.Between(0, 5) {
		mirror := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: judge.Pick(d, "a", "b", "c"), Namespace: judge.Pick(d, "ns", "ns", "ns", "other"), UID: types.UID(fmt.Sprintf("m%d", i))}}
		mirror.Annotations = map[string]string{mirrorAnnotation: judge.Pick(d, "h1", "h2", "h1", ""), sourceAnnotation: "api"}
		if w.has(w.Mirrors, mirror) && !d.Chance(20) {
			continue
		}
		if d.Chance(20) {
			mirror.DeletionTimestamp = &metav1.Time{}
		}
		w.Mirrors = append(w.Mirrors, mirror)
		there := mirror.DeepCopy()
		switch {
		case d.Chance(10):
			continue // it does not exist
		case d.Chance(10):
			there.UID += "-b" // it has a successor
		}
		if !w.has(w.There, there) {
			w.There = append(w.There, there)
		}
	}
	w.draw(d)
	return w
}

// draw draws failures and terminating pods.
func (w *planWorld) draw(d *judge.Draw) {
	for _, name := range []string{"ns/a", "ns/b", "ns/c", "other/a", "other/b", "other/c"} {
		if d.Chance(15) {
			w.Ending = append(w.Ending, name)
		}
		if d.Chance(8) {
			w.Fails[name] = judge.Pick(d, "create", "delete", "get")
		}
	}
	switch {
	case d.Chance(5):
		w.Node = nil
	case d.Chance(5):
		w.Node.DeletionTimestamp = &metav1.Time{}
	}
}

func (*planWorld) has(list []*corev1.Pod, pod *corev1.Pod) bool {
	return slices.ContainsFunc(list, func(p *corev1.Pod) bool { return fullName(p) == fullName(pod) })
}

func fullName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func (w *planWorld) isEnding(pod *corev1.Pod) bool { return slices.Contains(w.Ending, fullName(pod)) }

// A server is a client of an API server.
type server struct {
	kubernetes.Interface
	corev1client.CoreV1Interface
	w     *planWorld
	pods  map[string]*corev1.Pod
	calls map[string][]string
}

func newServer(w *planWorld) *server {
	s := &server{w: w, pods: map[string]*corev1.Pod{}, calls: map[string][]string{}}
	for _, pod := range w.There {
		s.pods[fullName(pod)] = pod
	}
	return s
}

func (s *server) CoreV1() corev1client.CoreV1Interface { return s }

func (s *server) Pods(namespace string) corev1client.PodInterface {
	return serverPods{server: s, namespace: namespace}
}

func (s *server) node() (*corev1.Node, error) {
	if s.w.Node == nil {
		return nil, errors.New("no node")
	}
	return s.w.Node, nil
}

// facts returns the calls for each name, and the remaining pods.
func (s *server) facts() judge.Facts {
	f := judge.Facts{}
	for name, calls := range s.calls {
		f["calls "+name] = strings.Join(calls, ", ")
	}
	for name, pod := range s.pods {
		f["there "+name] = fmt.Sprintf("%s %s", pod.UID, pod.Annotations[mirrorAnnotation])
	}
	return f
}

type serverPods struct {
	corev1client.PodInterface
	*server
	namespace string
}

func (p serverPods) record(name, call string) {
	p.calls[p.namespace+"/"+name] = append(p.calls[p.namespace+"/"+name], call)
}

func (p serverPods) fail(name, verb string) error {
	if p.w.Fails[p.namespace+"/"+name] == verb {
		return errors.New("the server is down")
	}
	return nil
}

func (p serverPods) Create(_ context.Context, pod *corev1.Pod, _ metav1.CreateOptions) (*corev1.Pod, error) {
	p.record(pod.Name, "create "+pod.Annotations[mirrorAnnotation])
	name := fullName(pod)
	if err := p.fail(pod.Name, "create"); err != nil {
		return &corev1.Pod{}, err
	}
	if p.pods[name] != nil {
		return &corev1.Pod{}, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, pod.Name)
	}
	p.pods[name] = pod.DeepCopy()
	p.pods[name].UID = "new"
	return p.pods[name], nil
}

func (p serverPods) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	if err := p.fail(name, "get"); err != nil {
		return nil, err
	}
	return p.pods[p.namespace+"/"+name], nil
}

func (p serverPods) Delete(_ context.Context, name string, opts metav1.DeleteOptions) error {
	pod, call := p.pods[p.namespace+"/"+name], "delete"
	conflict := false
	if opts.Preconditions != nil && opts.Preconditions.UID != nil {
		call += " " + string(*opts.Preconditions.UID)
		conflict = pod != nil && pod.UID != *opts.Preconditions.UID
	}
	p.record(name, call)
	switch err := p.fail(name, "delete"); {
	case err != nil:
		return err
	case pod == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	case conflict:
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("the UID is another"))
	}
	delete(p.pods, p.namespace+"/"+name)
	return nil
}

// serverNodes is a lister and a getter of the only node.
type serverNodes struct {
	corelisters.NodeLister
	*server
}

func (n serverNodes) Get(string) (*corev1.Node, error) { return n.node() }

// mirrorClient is the kubelet's client. With an option, a deletion also succeeds if another
// client has deleted the pod.
type mirrorClient struct {
	kubeletpod.MirrorClient
	server *server
	gone   bool
}

func (c mirrorClient) DeleteMirrorPod(ctx context.Context, name string, uid *types.UID) (bool, error) {
	deleted, err := c.MirrorClient.DeleteMirrorPod(ctx, name, uid)
	if c.gone && uid != nil {
		pod, namespace, _ := strings.Cut(name, "_")
		there := c.server.pods[namespace+"/"+pod]
		deleted = deleted || c.server.w.Fails[namespace+"/"+pod] != "delete" && (there == nil || there.UID != *uid)
	}
	return deleted, err
}

// set assigns to a field that is not exported.
func set(v any, field string, value any) {
	f := reflect.ValueOf(v).Elem().FieldByName(field)
	reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

func kubeletPlan(t *testing.T, w *planWorld) []judge.Facts {
	t.Helper()
	return []judge.Facts{playPlan(t.Context(), w, planVariant{})}
}

// playPlan runs the kubelet's sync of each static pod, and its cleanup of each orphan.
func playPlan(ctx context.Context, w *planWorld, v planVariant) judge.Facts {
	s, m := newServer(w), kubeletpod.NewBasicPodManager()
	for _, pod := range slices.Concat(v.pods(w), w.Mirrors) {
		m.AddPod(pod)
	}
	client := mirrorClient{kubeletpod.NewBasicMirrorClient(s, "node", serverNodes{server: s}), s, v.gone}
	kl := &kubelet.Kubelet{}
	set(kl, "podManager", m)
	set(kl, "mirrorPodClient", client)
	set(kl, "kubeClient", s)
	set(kl, "nodeLister", serverNodes{server: s})
	for _, pod := range v.pods(w) {
		mirror, _ := m.GetMirrorPodByPod(pod)
		if v.unversioned && mirror != nil && mirror.DeletionTimestamp == nil && pod.Annotations[hashAnnotation] == "" {
			continue
		}
		if v.unversioned && pod.Annotations[hashAnnotation] == "" {
			if mirror != nil && isStatic(pod) {
				_, _ = client.DeleteMirrorPod(ctx, pod.Name+"_"+pod.Namespace, &mirror.UID)
			}
			continue
		}
		tryReconcileMirrorPods(kl, ctx, pod, mirror)
	}
	v.cleanUp(ctx, w, m, client)
	return s.facts()
}

// cleanUp deletes orphans. A mirror pod that the manager replaced with another of the same
// name is an orphan in our plan.
func (v planVariant) cleanUp(ctx context.Context, w *planWorld, m kubeletpod.Manager, client kubeletpod.MirrorClient) {
	_, mirrors, orphans := m.GetPodsAndMirrorPods()
	slices.Sort(orphans)
	if !v.byUID {
		for _, name := range slices.Compact(orphans) {
			pod, namespace, _ := strings.Cut(name, "_")
			if !slices.Contains(w.Ending, namespace+"/"+pod) {
				_, _ = client.DeleteMirrorPod(ctx, name, nil)
			}
		}
		return
	}
	slices.SortFunc(mirrors, func(a, b *corev1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	for _, mirror := range mirrors {
		if name := mirror.Name + "_" + mirror.Namespace; slices.Contains(orphans, name) && !w.isEnding(mirror) {
			_, _ = client.DeleteMirrorPod(ctx, name, &mirror.UID)
		}
	}
}

func ourPlan(t *testing.T, w *planWorld) []judge.Facts {
	t.Helper()
	s := newServer(w)
	client, err := podmanager.NewMirrorClient(podmanager.MirrorConfig{
		Pods: func(namespace string) podmanager.PodClient { return s.Pods(namespace) },
		Node: func(context.Context) (*corev1.Node, error) { return s.node() },
	})
	require.NoError(t, err)
	m := podmanager.New()
	m.SetPods(slices.Concat(w.Pods, w.Mirrors))
	pods, mirrors, _ := m.GetPodsAndMirrorPods()
	keep := w.isEnding
	if len(w.Ending) == 0 {
		keep = nil
	}
	plan := podmanager.PlanMirrors(pods, mirrors, keep)
	for _, action := range plan {
		why := map[string]bool{
			podmanager.MirrorMissing:  action.Delete == nil && action.Create != nil,
			podmanager.MirrorOutdated: action.Delete != nil && action.Create != nil && action.Delete.DeletionTimestamp == nil,
			podmanager.MirrorDeleted:  action.Delete != nil && action.Delete.DeletionTimestamp != nil,
			podmanager.MirrorOrphaned: action.Delete != nil && action.Create == nil,
		}
		require.True(t, why[action.Reason], "unexpected reason of an action: %s", action.Reason)
	}
	one := newServer(w)
	single, err := podmanager.NewMirrorClient(podmanager.MirrorConfig{
		Pods: func(namespace string) podmanager.PodClient { return one.Pods(namespace) },
		Node: func(context.Context) (*corev1.Node, error) { return one.node() },
	})
	require.NoError(t, err)
	var errs []error
	for _, action := range plan {
		var err error
		if action.Delete != nil {
			err = single.Delete(t.Context(), action.Delete)
		}
		if err == nil && action.Create != nil {
			err = single.Create(t.Context(), action.Create)
		}
		errs = append(errs, err)
	}
	require.Equal(t, errors.Join(errs...), client.Apply(t.Context(), plan), "Apply and the actions of the plan return different errors")
	return []judge.Facts{s.facts()}
}

// A planVariant changes the kubelet's behaviour to ours, one difference per field.
type planVariant struct {
	latest      bool // the last of several pods with one name counts
	unversioned bool // a pod without a hash keeps its mirror pod, and gets no new one
	gone        bool // a deleted mirror pod can be created again
	byUID       bool // orphans are deleted by UID
	static      bool // the mirror pod of a pod that is not static is an orphan
}

// pods returns the pods that the kubelet's manager is given.
func (v planVariant) pods(w *planWorld) (pods []*corev1.Pod) {
	last := map[string]*corev1.Pod{}
	for _, pod := range w.Pods {
		last[fullName(pod)] = pod
	}
	for _, pod := range w.Pods {
		if v.latest && last[fullName(pod)] != pod || v.static && !isStatic(last[fullName(pod)]) {
			continue
		}
		pods = append(pods, pod)
	}
	return pods
}

// explains reports whether the variant explains the difference. This is so in two cases: the
// kubelet does what our plan does with this variant alone; or it does so with all variants
// together, and no longer without this variant.
func (v planVariant) explains(s judge.Scene[*planWorld]) bool {
	decides := func(v planVariant) bool {
		return playPlan(context.Background(), s.World, v)[s.Fact] == s.Ours
	}
	every := planVariant{true, true, true, true, true}
	without := planVariant{!v.latest, !v.unversioned, !v.gone, !v.byUID, !v.static}
	return decides(v) || decides(every) && !decides(without)
}

func planRules() []judge.Rule[*planWorld] {
	rule := func(name string, class judge.Class, v planVariant, sentence string) judge.Rule[*planWorld] {
		return judge.Rule[*planWorld]{Name: name, Class: class, Doc: docPath, Sentence: sentence, Explains: v.explains}
	}
	return []judge.Rule[*planWorld]{
		rule("several static pods with one name", judge.KubeletDefect, planVariant{latest: true},
			"If two static pods have the same name, for example while one replaces the other, the kubelet replaces the mirror for each of them in turn; in ours the mirror belongs to the pod that was added last."),
		rule("static pods without a hash", judge.Deliberate, planVariant{unversioned: true},
			"If a static pod has no hash, ours keeps an existing mirror and creates no new mirror; the kubelet deletes the mirror and creates a mirror with an empty hash."),
		rule("replacement of a vanished mirror pod", judge.Deliberate, planVariant{gone: true},
			"If the mirror to be replaced does not exist any more, or a newer pod has its name, the kubelet waits for the next sync of the pod; ours tries to create the new mirror at once."),
		rule("orphaned mirror pods deleted by UID", judge.Deliberate, planVariant{byUID: true},
			"The kubelet deletes orphaned mirrors by their names; ours returns them as pods, so that they can be deleted by UID."),
		rule("mirror pods of non-static pods", judge.Deliberate, planVariant{static: true},
			"Our PlanMirrors treats a mirror as an orphan if the pod with the same name is not static; the kubelet keeps that mirror."),
	}
}

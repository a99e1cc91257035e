package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// Lister lists all sandboxes and containers, a subset of cri.RuntimeService.
// [Config].Lister may be an implementation that is faster than the CRI client, such as
// pleg/wirelist, which does not decode unchanged items.
//
// The generator reads the results during the relist and retains only their strings. It does
// not modify the results, so a lister may return the same messages and the same slice
// again.
type Lister interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}

// ErrTooLarge means that the runtime has more sandboxes or containers than fit into one
// gRPC message (status ResourceExhausted); the limit is 16 MiB in most runtimes. Retries do
// not help. To fix it, remove dead containers or use a [Lister] that streams. Until then
// Run works in a degraded mode: it relists the known pods in turn, a few at a time, with
// filtered lists. [Generator.RequestRelist], hints and [Generator.RelistPod] work as
// before. After Threshold, [Generator.Healthy] returns an error that wraps ErrTooLarge.
var ErrTooLarge = errors.New("the list does not fit into one message")

// wrapTooLarge wraps the error of a list in [ErrTooLarge] if its code is ResourceExhausted.
func wrapTooLarge(err error) error {
	if grpcstatus.Code(err) != codes.ResourceExhausted {
		return err
	}
	return fmt.Errorf("%w: %w", ErrTooLarge, err)
}

// state is the listed state of an object. A CRI state that this build does not know becomes
// unknown.
type state uint8

const (
	absent state = iota
	created
	unknown
	running
	exited
)

func sandboxState(s runtimeapi.PodSandboxState) state {
	switch s {
	case runtimeapi.PodSandboxState_SANDBOX_READY:
		return running
	case runtimeapi.PodSandboxState_SANDBOX_NOTREADY:
		return exited
	default:
		return unknown
	}
}

func containerState(s runtimeapi.ContainerState) state {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return exited
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return created
	default:
		return unknown
	}
}

// object is one listed sandbox or container.
type object struct {
	key
	state state
	// sandboxID is the ID of a container's sandbox.
	sandboxID string
	// podName and podNamespace are the names of the pod in the list. They may be empty.
	podName, podNamespace string
	// unlabelled means that the object lacks the label of its pod's UID. A list filtered by
	// that label does not contain the object.
	unlabelled bool
}

// key identifies an object.
type key struct {
	id      string
	pod     types.UID
	sandbox bool
}

// list returns all objects of the runtime that have the labels.
func (g *Generator) list(ctx context.Context, rt Lister, labels map[string]string) ([]object, error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.ListTimeout)
	defer cancel()
	sandboxes, err := rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: labels})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", wrapTooLarge(err))
	}
	containers, err := rt.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", wrapTooLarge(err))
	}
	return read(sandboxes, containers, labels), nil
}

// read returns the objects of two lists that have the labels, sandboxes first. It omits
// objects without a pod UID: a node agent always sets the UID, so they are not from an agent.
func read(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container, labels map[string]string) []object {
	objects := make([]object, 0, len(sandboxes)+len(containers))
	add := func(o object, has map[string]string) {
		if o.id != "" && o.pod != "" && matches(has, labels) {
			objects = append(objects, o)
		}
	}
	for _, b := range sandboxes {
		add(object{
			key:     key{b.GetId(), sandboxPod(b), true},
			state:   sandboxState(b.GetState()),
			podName: b.GetMetadata().GetName(), podNamespace: b.GetMetadata().GetNamespace(),
			unlabelled: crilabels.UID(b.GetLabels()) == "",
		}, b.GetLabels())
	}
	for _, c := range containers {
		has := c.GetLabels()
		o := object{
			key:       key{c.GetId(), crilabels.UID(has), false},
			state:     containerState(c.GetState()),
			sandboxID: c.GetPodSandboxId(),
			podName:   has[crilabels.PodName], podNamespace: has[crilabels.PodNamespace],
		}
		if o.unlabelled = o.pod == ""; o.unlabelled {
			o.pod = podOfSandbox(sandboxes, o.sandboxID)
		}
		add(o, has)
	}
	return objects
}

func podOfSandbox(sandboxes []*runtimeapi.PodSandbox, id string) types.UID {
	i := slices.IndexFunc(sandboxes, func(b *runtimeapi.PodSandbox) bool { return b.GetId() == id })
	if i < 0 {
		return ""
	}
	return sandboxPod(sandboxes[i])
}

func sandboxPod(b *runtimeapi.PodSandbox) types.UID {
	return cmp.Or(crilabels.UID(b.GetLabels()), types.UID(b.GetMetadata().GetUid()))
}

// matches reports whether labels match the selector. The runtime should have filtered
// already, but if it ignores the selector, the pods of other agents must not be included.
func matches(labels, selector map[string]string) bool {
	for key, value := range selector {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// change is the difference in one object between two listings.
type change struct {
	object   *object // from the newer listing, or from the older listing if it was removed
	from, to state
}

// diff returns the changes from an older listing to a newer listing. The changes of objects
// in the newer listing come first, in the order of that listing. The removals of objects
// that only the older listing contains follow, in the order of the older listing. If a
// listing contains an object twice, only the first counts.
func diff(old, next []object) (changes []change) {
	if slices.Equal(old, next) {
		return nil
	}
	before, after := byKey(old), byKey(next)
	for i := range next {
		is := &next[i]
		from := absent
		if was := before[is.key]; was != nil {
			from = was.state
		}
		if after[is.key] == is && from != is.state {
			changes = append(changes, change{is, from, is.state})
		}
	}
	for i := range old {
		was := &old[i]
		if before[was.key] == was && after[was.key] == nil {
			changes = append(changes, change{was, was.state, absent})
		}
	}
	return changes
}

// byKey returns the objects by key. If several objects have the same key, it returns the
// first of them.
func byKey(objects []object) map[key]*object {
	all := make(map[key]*object, len(objects))
	for i := range slices.Backward(objects) {
		all[objects[i].key] = &objects[i]
	}
	return all
}

// count returns a Result with the counts of the pods and containers in a listing.
func count(objects []object) (res Result) {
	ready := map[types.UID]bool{} // by pod
	for i := range objects {
		o := &objects[i]
		ready[o.pod] = ready[o.pod] || o.sandbox && o.state == running
		switch {
		case o.sandbox:
		case o.state == running:
			res.RunningContainers++
		case o.state == exited:
			res.ExitedContainers++
		default:
			res.OtherContainers++
		}
	}
	res.Pods = len(ready)
	for _, r := range ready {
		if r {
			res.RunningPods++
		}
	}
	return res
}

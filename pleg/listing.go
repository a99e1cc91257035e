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

// Lister lists all sandboxes and containers, a literal subset of cri.RuntimeService.
// Where something is faster at that than the CRI client is, [Config].Lister takes it:
// pleg/wirelist does not decode what has not changed.
//
// The generator reads answers while it relists and keeps no message of them, only
// strings. It modifies nothing, so a lister may return the same messages, and the
// same slice, again.
type Lister interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}

// ErrTooLarge says that the runtime has more sandboxes or containers than fit into
// one message, 16 MiB with most: the code is ResourceExhausted. No repetition
// helps, but fewer dead containers do, or a [Lister] that streams. Until then the
// generator is degraded: it goes around the pods that it knows with filtered lists,
// [Generator.RequestRelist], the hints and [Generator.RelistPod] work as ever, and
// after Threshold [Generator.Healthy] returns an error that wraps this one.
var ErrTooLarge = errors.New("the list does not fit into one message")

// explain adds [ErrTooLarge] to the error of a list where that is the reason.
func explain(err error) error {
	if grpcstatus.Code(err) != codes.ResourceExhausted {
		return err
	}
	return fmt.Errorf("%w: %w", ErrTooLarge, err)
}

// state is the listed state of an object. Every value this build does not know is unknown.
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
	// box is a container's sandbox.
	box string
	// podName and podNamespace are the names of the pod in the list. They may be empty.
	podName, podNamespace string
	// unlabelled marks an object without the label of its pod's UID: a list filtered
	// by that label does not show it.
	unlabelled bool
}

// key identifies an object.
type key struct {
	id      string
	pod     types.UID
	sandbox bool
}

// list asks the runtime for all objects with the labels.
func (g *Generator) list(ctx context.Context, rt Lister, labels map[string]string) ([]object, error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.ListTimeout)
	defer cancel()
	sandboxes, err := rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: labels})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", explain(err))
	}
	containers, err := rt.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", explain(err))
	}
	return read(sandboxes, containers, labels), nil
}

// read returns the objects of two lists, sandboxes first. Objects without a pod are
// left out: no kubelet has made them.
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
			key:     key{c.GetId(), crilabels.UID(has), false},
			state:   containerState(c.GetState()),
			box:     c.GetPodSandboxId(),
			podName: has[crilabels.PodName], podNamespace: has[crilabels.PodNamespace],
		}
		if o.unlabelled = o.pod == ""; o.unlabelled {
			o.pod = podOfSandbox(sandboxes, o.box)
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

// matches repeats what the runtime was asked to do. A runtime that ignores the
// selector would otherwise have us take other agents' pods for ours.
func matches(labels, selector map[string]string) bool {
	for key, value := range selector {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// change is one object's step from one listing to the next.
type change struct {
	object   *object // of the newer listing, or of the older if the newer has none
	from, to state
}

// diff returns the changes from old to next: those of objects in next, in its order,
// then the objects that next no longer has, in the order of old. An object that a
// listing repeats counts once.
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

// byKey returns the objects by their keys, the first of those that have the same.
func byKey(objects []object) map[key]*object {
	all := make(map[key]*object, len(objects))
	for i := range slices.Backward(objects) {
		all[objects[i].key] = &objects[i]
	}
	return all
}

// count returns the counts of pods and containers in a listing.
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

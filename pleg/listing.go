package pleg

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// list asks the runtime for all objects with the labels, for no longer than limit,
// and reads them into l. Like before, which may be nil, costs less than unlike it.
func (l *listing) list(ctx context.Context, limit time.Duration, rt Lister, labels map[string]string, before *listing) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l.reset()
	sandboxes, err := rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: labels})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", explain(err))
	}
	containers, err := rt.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels})
	if err != nil {
		return fmt.Errorf("list containers: %w", explain(err))
	}
	l.read(sandboxes, containers, labels, before)
	return nil
}

// read fills l, which is empty, with what the lists show. What nothing ties to a
// pod is left out: it is not the kubelet's kind.
func (l *listing) read(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container,
	labels map[string]string, before *listing,
) {
	for _, b := range sandboxes {
		o := object{id: b.GetId(), sandbox: true, state: sandboxState(b.GetState())}
		if !l.recall(&o, before) {
			o.pod, o.unlabelled = sandboxPod(b), crilabels.UID(b.GetLabels()) == ""
			o.podName, o.podNamespace = b.GetMetadata().GetName(), b.GetMetadata().GetNamespace()
			if !o.known() || !matches(b.GetLabels(), labels) {
				continue
			}
		}
		l.objects = append(l.objects, o)
	}
	pods := podIndex{sandboxes: sandboxes}
	for _, c := range containers {
		o := object{id: c.GetId(), state: containerState(c.GetState())}
		if !l.recall(&o, before) {
			o.pod, o.box = crilabels.UID(c.GetLabels()), c.GetPodSandboxId()
			o.podName, o.podNamespace = c.GetLabels()[crilabels.PodName], c.GetLabels()[crilabels.PodNamespace]
			if o.unlabelled = o.pod == ""; o.unlabelled {
				o.pod = pods.of(o.box)
			}
			if !o.known() || !matches(c.GetLabels(), labels) {
				continue
			}
		}
		l.objects = append(l.objects, o)
	}
}

// known says whether the object can be told from others and belongs to a pod.
func (o *object) known() bool { return o.id != "" && o.pod != "" }

// recall completes o from the object at the same place before, if that is the
// same one: neither pod nor labels of an object change. The old id replaces the
// new one so that the memory of old answers is not kept and new not looked at.
func (l *listing) recall(o *object, before *listing) bool {
	at := len(l.objects)
	if before == nil || at >= len(before.objects) {
		return false
	}
	was := &before.objects[at]
	if was.id != o.id || was.sandbox != o.sandbox {
		return false
	}
	now := o.state
	*o = *was
	o.state = now
	return true
}

// podIndex tells the pods of containers that carry no pod UID themselves. It is
// made when first asked: most runtimes never have one.
type podIndex struct {
	sandboxes []*runtimeapi.PodSandbox
	pods      map[string]types.UID // by sandbox id
}

func (p *podIndex) of(sandbox string) types.UID {
	if p.pods == nil {
		p.pods = make(map[string]types.UID, len(p.sandboxes))
		for _, b := range p.sandboxes {
			p.pods[b.GetId()] = sandboxPod(b)
		}
	}
	return p.pods[sandbox]
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
	default: // created, unknown, and what this build does not know
		return unknown
	}
}

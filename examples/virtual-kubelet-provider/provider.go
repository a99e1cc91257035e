package provider

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/status"
)

// Provider implements node.PodLifecycleHandler and node.PodNotifier of virtual-kubelet. Create it
// with [New]. Run must be in progress while the PodController runs.
type Provider struct {
	machine  Machine
	view     view
	pods     *podmanager.Manager
	workers  *podworker.Workers
	probes   *prober.Manager
	backoff  *lifecycle.Backoff
	statuses *status.Manager
}

// New returns a provider that runs containers on machine. It starts nothing.
func New(machine Machine) (p *Provider, err error) {
	p = &Provider{machine: machine, view: view{machine}, pods: podmanager.New()}
	var errs [4]error
	p.workers, errs[0] = podworker.New(podworker.Config{
		Syncer: syncer{p}, Cache: p.view, Observer: podworker.Observer{PhaseChanged: p.moved},
	})
	p.probes, errs[1] = prober.New(prober.Config{Lookup: p.target, Runner: commands{machine}})
	p.backoff, errs[2] = lifecycle.NewBackoff(lifecycle.BackoffConfig{})
	p.statuses, errs[3] = status.New(status.Config{})
	return p, errors.Join(errs[:]...)
}

// Run runs the pod workers and probes until ctx is done.
func (p *Provider) Run(ctx context.Context) error {
	changes := p.probes.Results(ctx)
	var parts sync.WaitGroup
	var errs [2]error
	parts.Go(func() { errs[0] = p.workers.Run(ctx) })
	parts.Go(func() { errs[1] = p.probes.Run(ctx) })
	for c := range changes {
		if c.Kind == prober.Readiness {
			p.statuses.SetContainerReadiness(c.PodUID, c.ContainerID, c.Result == prober.Success)
		}
		p.wake(c.PodUID)
	}
	parts.Wait()
	return errors.Join(errs[:]...)
}

// Changed must be called by the machine when a container of the pod has ended.
func (p *Provider) Changed(uid types.UID) {
	p.probes.Refresh(uid)
	p.wake(uid)
}

func (p *Provider) wake(uid types.UID) {
	if pod, ok := p.pods.GetPodByUID(uid); ok {
		p.workers.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: pod})
	}
}

// CreatePod starts a pod. It does not wait until the pod is running.
func (p *Provider) CreatePod(_ context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.InitContainers) > 0 {
		return errdefs.InvalidInput("init containers are not supported")
	}
	p.pods.AddPod(pod)
	p.workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
	return nil
}

// UpdatePod replaces a pod with a new version of the pod.
func (p *Provider) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	p.pods.UpdatePod(pod)
	p.workers.UpdatePod(podworker.Update{Type: podworker.Change, Pod: pod})
	return nil
}

// DeletePod starts the termination of a pod and does not wait for its end. The provider reports the
// progress to the function that NotifyPods has registered. A second call can only shorten the
// grace period.
func (p *Provider) DeletePod(_ context.Context, pod *corev1.Pod) error {
	if _, ok := p.pods.GetPodByUID(pod.UID); !ok {
		return errdefs.NotFoundf("pod %s/%s not found", pod.Namespace, pod.Name)
	}
	if pod.DeletionTimestamp == nil {
		pod = pod.DeepCopy()
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	p.pods.UpdatePod(pod)
	p.workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod})
	p.forget(pod.UID) // if the pod has finished by itself already, the workers do not call moved again
	return nil
}

// moved deletes the state of a deleted pod when it has finished.
func (p *Provider) moved(uid types.UID, _ *corev1.Pod, phase podworker.Phase) {
	if phase == podworker.Finished {
		p.forget(uid)
	}
}

// forget deletes the state of a pod that was deleted and has finished.
func (p *Provider) forget(uid types.UID) {
	pod, ok := p.pods.GetPodByUID(uid)
	if !ok || pod.DeletionTimestamp == nil || !p.workers.ShouldPodBeFinished(uid) {
		return
	}
	p.pods.RemovePod(pod)
	p.workers.SyncKnownPods(p.pods.GetPods)
	p.statuses.RemoveOrphanedStatuses(func(uid types.UID) bool {
		_, ok := p.pods.GetPodByUID(uid)
		return ok
	})
}

// GetPod returns a pod with its status.
func (p *Provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, ok := p.pods.GetPodByName(namespace, name)
	if !ok {
		return nil, errdefs.NotFoundf("pod %s/%s not found", namespace, name)
	}
	return p.shown(pod), nil
}

// GetPodStatus returns the status of a pod.
func (p *Provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns all pods.
func (p *Provider) GetPods(context.Context) (all []*corev1.Pod, err error) {
	for _, pod := range p.pods.GetPods() {
		all = append(all, p.shown(pod))
	}
	return all, nil
}

func (p *Provider) shown(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	if s, ok := p.statuses.GetPodStatus(pod.UID); ok {
		pod.Status = *s.DeepCopy()
	}
	return pod
}

// NotifyPods registers notify. The provider calls notify with a pod each time the pod's status has
// changed.
func (p *Provider) NotifyPods(_ context.Context, notify func(*corev1.Pod)) {
	p.statuses.Subscribe(status.Observer{StatusChanged: func(c status.Change) {
		pod := c.Pod.DeepCopy()
		pod.Status = *c.New.DeepCopy()
		notify(pod)
	}})
}

// target returns the state of a container for the prober. It returns false if the container does
// not exist.
func (p *Provider) target(uid types.UID, container string) (prober.Target, bool) {
	observed, _ := p.view.Get(uid)
	c := observed.Container(container)
	if c == nil {
		return prober.Target{}, false
	}
	t := prober.Target{ID: c.Id, State: prober.Exited, StartedAt: time.Unix(0, c.StartedAt)}
	if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.State = prober.Running
	}
	return t, true
}

// commands runs the commands of exec probes.
type commands struct{ machine Machine }

// Exec implements [prober.Runner].
func (c commands) Exec(ctx context.Context, r prober.ExecRequest) (int32, error) {
	return c.machine.Exec(ctx, r.ContainerID, r.Command, r.Output)
}

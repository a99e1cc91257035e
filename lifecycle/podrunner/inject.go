package podrunner

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
)

// injections records, for the containers of one pod, their cpusets and the
// health of their resources.
type injections struct {
	// cpusets holds the last cpuset that this Runner set for a container, by
	// container ID.
	cpusets map[string]Cpuset
	// health holds the health of resources that Inject returned last, by
	// container name.
	health map[string][]corev1.ResourceStatus
}

// runningContainers yields the containers of the spec that run in the current
// sandbox.
func runningContainers(pod *corev1.Pod, status *podcache.Status) iter.Seq2[*corev1.Container, *runtimeapi.ContainerStatus] {
	return func(yield func(*corev1.Container, *runtimeapi.ContainerStatus) bool) {
		runs := func(c *corev1.Container) *runtimeapi.ContainerStatus {
			if s := status.Active(c.Name); s != nil && running(s) {
				return s
			}
			return nil
		}
		for c := range podspec.Containers(&pod.Spec) {
			if s := runs(c); s != nil && !yield(c, s) {
				return
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			c := podspec.Ephemeral(&pod.Spec.EphemeralContainers[i])
			if s := runs(c); s != nil && !yield(c, s) {
				return
			}
		}
	}
}

// pinnings calls Inject for each running container of the pod and returns the
// cpusets that Plan compares. If Inject fails for a container, the cpuset of
// this container is not changed.
func (r *Runner) pinnings(ctx context.Context, pod *corev1.Pod, status *podcache.Status) (map[string]Pinning, error) {
	if r.cfg.Inject == nil {
		return nil, nil
	}
	r.dropCpusets(status)
	pinnings := map[string]Pinning{}
	var errs []error
	for c, s := range runningContainers(pod, status) {
		in, err := r.cfg.Inject(ctx, resources.ContainerRequest{Pod: pod, Container: c, ID: s.GetId()})
		if err != nil {
			errs = append(errs, fmt.Errorf("update resources of running container %s of pod %s: %w", c.Name, podName(pod), err))
		} else {
			r.setHealth(pod.UID, c.Name, in.Health)
		}
		pinnings[s.GetId()] = Pinning{Now: r.cpuset(pod.UID, s), Wanted: Cpuset{CPUs: in.CPUs, Mems: in.Mems}}
	}
	return pinnings, errors.Join(errs...)
}

// inject returns the Injection for a container that is about to be created.
func (t *podSync) inject(ctx context.Context, c *corev1.Container) (resources.Injection, error) {
	if t.cfg.Inject == nil {
		return resources.Injection{}, nil
	}
	in, err := t.cfg.Inject(ctx, resources.ContainerRequest{Pod: t.pod, Container: c})
	if err == nil {
		t.setHealth(t.pod.UID, c.Name, in.Health)
	}
	return in, err
}

// pin changes the cpusets of running containers. If a change fails, pin
// continues with the other changes, and the next plan contains the failed
// change again.
func (t *podSync) pin(ctx context.Context, pins []Pin) error {
	var errs []error
	for _, p := range pins {
		err := t.cfg.Resizer.UpdateContainerResources(ctx, p.ID, &runtimeapi.ContainerResources{
			Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: p.To.CPUs, CpusetMems: p.To.Mems},
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
			continue
		}
		t.setCpuset(t.pod.UID, p.ID, p.To)
	}
	return errors.Join(errs...)
}

// Health returns the health of resources that [Config].Inject returned last for
// the pod's containers, by container name. The result can be used as
// status.Input.Devices. Nil means that the health is unknown. The caller owns
// the map, but must not modify the slices.
func (r *Runner) Health(uid types.UID) map[string][]corev1.ResourceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.injections[uid].health)
}

func (r *Runner) setHealth(uid types.UID, container string, health []corev1.ResourceStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.injectionsOf(uid).health[container] = health
}

// injectionsOf returns the record of a pod. The caller holds r.mu.
func (r *Runner) injectionsOf(uid types.UID) injections {
	in, ok := r.injections[uid]
	if !ok {
		in = injections{cpusets: map[string]Cpuset{}, health: map[string][]corev1.ResourceStatus{}}
		r.injections[uid] = in
	}
	return in
}

// cpuset returns the current cpuset of a container: the last cpuset that this
// Runner set, or else the cpuset that the runtime reports.
func (r *Runner) cpuset(uid types.UID, s *runtimeapi.ContainerStatus) Cpuset {
	r.mu.Lock()
	defer r.mu.Unlock()
	if given, ok := r.injections[uid].cpusets[s.GetId()]; ok {
		return given
	}
	linux := s.GetResources().GetLinux()
	return Cpuset{CPUs: linux.GetCpusetCpus(), Mems: linux.GetCpusetMems()}
}

// setCpuset records the cpuset that was set for a container. An empty field was
// not set, so its recorded value remains.
func (r *Runner) setCpuset(uid types.UID, id string, given Cpuset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cpusets := r.injectionsOf(uid).cpusets
	cpusets[id] = given.or(cpusets[id])
}

// dropCpusets deletes the recorded cpusets of containers that have ended.
func (r *Runner) dropCpusets(status *podcache.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.injections[status.UID].cpusets, func(id string, _ Cpuset) bool {
		return !slices.ContainsFunc(status.Containers, func(s *runtimeapi.ContainerStatus) bool { return s.GetId() == id && !exited(s) })
	})
}

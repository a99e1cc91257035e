package podrunner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/podlimits"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Resizer contains the runtime's methods that change resources in place.
// cri.RuntimeService implements Resizer.
type Resizer interface {
	UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.ContainerResources) error
	UpdatePodSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error)
}

// update changes resources in the plan's order, and reports the result to the
// Observer.
func (t *podSync) update(ctx context.Context, updates []Resize) error {
	if len(updates) == 0 {
		return nil
	}
	began := t.cfg.Clock.Now()
	err := t.resize(ctx, updates)
	if t.cfg.Observer.Resized != nil {
		t.cfg.Observer.Resized(t.pod, t.cfg.Clock.Since(began), err)
	}
	return err
}

// resize changes resources in the plan's order. It stops at the first failure,
// because later changes may need the resources that an earlier change frees.
// The next plan contains the remaining changes again.
func (t *podSync) resize(ctx context.Context, updates []Resize) error {
	if t.cfg.PodCgroups != nil && slices.ContainsFunc(updates, func(u Resize) bool { return u.growth() > 0 }) {
		// Ignore the error: the kernel may refuse to lower a limit before the
		// containers have shrunk. The limits are set again below.
		_ = t.cfg.PodCgroups.Update(ctx, t.pod, t.node.Limits.quotaPeriod())
	}
	for i, u := range updates {
		var err error
		if u.Pod {
			err = t.updateSandbox(ctx, u, updates[i+1:])
		} else {
			err = t.updateContainer(ctx, u, updates[i+1:])
		}
		if err != nil {
			t.event(t.pod, corev1.EventTypeWarning, "ResizeError", "error resizing %s of %s: %v", u.Resource, u.Name, err)
			return fmt.Errorf("%s: %w", u, err)
		}
		if t.cfg.Resized != nil {
			t.cfg.Resized(t.pod.UID)
		}
	}
	if t.cfg.PodCgroups == nil {
		return nil
	}
	if err := t.cfg.PodCgroups.Update(ctx, t.pod, t.node.Limits.quotaPeriod()); err != nil {
		return err
	}
	t.setEnforcedPod(ctx, t.pod, t.node)
	return nil
}

func (t *podSync) updateContainer(ctx context.Context, u Resize, later []Resize) error {
	if err := t.cfg.Resizer.UpdateContainerResources(ctx, u.ID, &runtimeapi.ContainerResources{Linux: t.resized(u, later)}); err != nil {
		return err
	}
	t.setResized(ctx, t.pod, u)
	return nil
}

// resized returns all resources of a container, because each change sends all
// resources to the runtime, as in the kubelet. The resource that u changes has
// its new value. Resources that only later changes concern have their current
// values.
func (t *podSync) resized(u Resize, later []Resize) *runtimeapi.LinuxContainerResources {
	c := podspec.Container(&t.pod.Spec, u.Name)
	if c == nil {
		return u.To
	}
	// The error is ignored: the creation of the container has rejected huge page
	// sizes that the node does not have.
	all, _ := ContainerResources(t.pod, c, t.node)
	for _, l := range later {
		if l.ID == u.ID {
			l.set(all, l.From)
			all.CpuQuota = max(0, all.GetCpuQuota()) // the CRI's value for "no change"
		}
	}
	u.set(all, u.To)
	return all
}

// set copies the values of r's resource from one message to the other.
func (r Resize) set(to, from *runtimeapi.LinuxContainerResources) {
	if r.Resource == corev1.ResourceMemory {
		to.MemoryLimitInBytes = from.GetMemoryLimitInBytes()
		return
	}
	to.CpuShares, to.CpuQuota, to.CpuPeriod = from.GetCpuShares(), from.GetCpuQuota(), from.GetCpuPeriod()
}

// updateSandbox reports the pod's resources to the runtime. Most runtimes do
// not implement this call; updateSandbox then returns nil.
func (t *podSync) updateSandbox(ctx context.Context, u Resize, later []Resize) error {
	config := SandboxConfig(t.pod, 0, t.node).GetLinux()
	_, err := t.cfg.Resizer.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: u.ID, Overhead: config.GetOverhead(), Resources: withoutOverhead(t.pod, t.podResized(u, later)),
	})
	code := grpcstatus.Code(err)
	// containerd 2.2 returns the code Unknown with the message "not implemented
	// yet".
	if code == codes.Unimplemented || code == codes.Unknown && strings.Contains(grpcstatus.Convert(err).Message(), "not implemented") {
		return nil
	}
	return err
}

// podResized returns all resources of the pod. The resource that u changes has
// its new value. A resource that only a later change concerns has its current
// value.
func (t *podSync) podResized(u Resize, later []Resize) *runtimeapi.LinuxContainerResources {
	all := podLimitsOf(t.pod, t.node.Limits).linux()
	for _, l := range later {
		if l.Pod {
			l.set(all, l.From)
		}
	}
	u.set(all, u.To)
	return all
}

// withoutOverhead subtracts the pod's overhead from res, because the runtime
// adds the overhead.
func withoutOverhead(pod *corev1.Pod, res *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	cpu := pod.Spec.Overhead.Cpu().MilliValue()
	if memory := pod.Spec.Overhead.Memory().Value(); res.GetMemoryLimitInBytes() > 0 {
		res.MemoryLimitInBytes -= memory
	}
	if res.CpuQuota = limit(res.GetCpuQuota()); res.GetCpuQuota() > 0 {
		res.CpuQuota -= cpu * res.GetCpuPeriod() / 1000
	}
	res.CpuShares = max(podlimits.MinShares, res.GetCpuShares()-cpu*podlimits.SharesPerCore/1000)
	return res
}

// resources returns the resources that Plan compares. If the Config has no
// Resizer, it returns empty Resources, and Plan resizes nothing.
func (r *Runner) resources(ctx context.Context, pod *corev1.Pod, node Node) Resources {
	if r.cfg.Resizer == nil {
		return Resources{}
	}
	e := r.loadEnforced(ctx, pod.UID)
	res := Resources{
		Container: func(c *corev1.Container) *runtimeapi.LinuxContainerResources {
			// The error is ignored: the creation of the container has
			// rejected huge page sizes that the node does not have.
			resources, _ := ContainerResources(pod, c, node)
			return resources
		},
		Enforced: func(name string) *Enforced {
			is, known := e.Containers[name]
			if !known {
				return nil
			}
			return &Enforced{ResourceRequirements: is, Linux: cpuAndMemory(is.Requests, is.Limits, node)}
		},
	}
	if r.cfg.PodCgroups != nil && e.Pod != nil {
		res.PodNow, res.PodWanted = e.Pod.linux(), podLimitsOf(pod, node.Limits).linux()
	}
	return res
}

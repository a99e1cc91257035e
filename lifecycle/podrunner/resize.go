package podrunner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Resizer is what a Runner asks of a runtime to change resources in place;
// cri.RuntimeService has it.
type Resizer interface {
	UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.ContainerResources) error
	UpdatePodSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error)
}

// update changes resources in the plan's order and stops at the first failure,
// for what comes after it may need the room; the next plan names the rest again.
func (t *turn) update(ctx context.Context, updates []Resize) error {
	if len(updates) == 0 {
		return nil
	}
	if t.cfg.PodCgroups != nil && slices.ContainsFunc(updates, func(u Resize) bool { return u.growth() > 0 }) {
		// A limit that shrinks beside one that grows may not be possible yet.
		_ = t.cfg.PodCgroups.Update(ctx, t.pod)
	}
	for i, u := range updates {
		var err error
		if u.Pod {
			err = t.updateSandbox(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: u.ID, Resources: u.To})
		} else {
			err = t.cfg.Resizer.UpdateContainerResources(ctx, u.ID, &runtimeapi.ContainerResources{Linux: t.resized(u, updates[i+1:])})
		}
		if err != nil {
			t.event(t.pod, corev1.EventTypeWarning, "ResizeError", "error resizing %s of %s: %v", u.Resource, u.Name, err)
			return fmt.Errorf("%s: %w", u, err)
		}
		t.setResized(t.pod.UID, u)
		if t.cfg.Resized != nil {
			t.cfg.Resized(t.pod.UID)
		}
	}
	if t.cfg.PodCgroups == nil {
		return nil
	}
	return t.cfg.PodCgroups.Update(ctx, t.pod)
}

// resized returns all resources of a container, as the kubelet sends them with each
// change: u's as they are to be, and those of later changes as they are now.
func (t *turn) resized(u Resize, later []Resize) *runtimeapi.LinuxContainerResources {
	c := containerNamed(t.pod, u.Name)
	if c == nil {
		return u.To
	}
	// Huge pages that the node does not have were refused at the start.
	all, _ := ContainerResources(t.pod, c, t.node)
	for _, l := range later {
		if l.ID == u.ID && l.Resource == corev1.ResourceCPU {
			all.CpuShares, all.CpuQuota, all.CpuPeriod = l.From.GetCpuShares(), max(0, l.From.GetCpuQuota()), l.From.GetCpuPeriod()
		}
	}
	if u.Resource == corev1.ResourceMemory {
		all.MemoryLimitInBytes = u.To.GetMemoryLimitInBytes()
	} else {
		all.CpuShares, all.CpuQuota, all.CpuPeriod = u.To.GetCpuShares(), u.To.GetCpuQuota(), u.To.GetCpuPeriod()
	}
	return all
}

// resizeKey names a resource of a container or pod.
type resizeKey struct {
	id       string
	resource corev1.ResourceName
}

// unmade returns the resizes that were not made yet. A runtime that goes on
// showing what was there before, for it rounds or does not look, is not asked for
// the same thing again and again.
func (r *Runner) unmade(uid types.UID, updates []Resize) []Resize {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(updates, func(u Resize) bool {
		return r.resized[uid][resizeKey{u.ID, u.Resource}] == u.String()
	})
}

func (r *Runner) setResized(uid types.UID, u Resize) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resized[uid] == nil {
		r.resized[uid] = map[resizeKey]string{}
	}
	r.resized[uid][resizeKey{u.ID, u.Resource}] = u.String()
}

// updateSandbox tells the runtime what the pod as a whole has. One that is not
// interested, as most are not, need not know.
func (t *turn) updateSandbox(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) error {
	_, err := t.cfg.Resizer.UpdatePodSandboxResources(ctx, request)
	code := grpcstatus.Code(err)
	// containerd 2.2 answers Unknown, "not implemented yet".
	if code == codes.Unimplemented || code == codes.Unknown && strings.Contains(grpcstatus.Convert(err).Message(), "not implemented") {
		return nil
	}
	return err
}

// resources are what Plan compares; none where nothing can be resized.
func (r *Runner) resources(pod *corev1.Pod, node Node) Resources {
	if r.cfg.Resizer == nil {
		return Resources{}
	}
	res := Resources{Container: func(c *corev1.Container) *runtimeapi.LinuxContainerResources {
		// Huge pages that the node does not have were refused at the start.
		resources, _ := ContainerResources(pod, c, node)
		return resources
	}}
	if r.cfg.PodResources != nil {
		res.PodNow, res.PodWanted = r.cfg.PodResources(pod)
	}
	return res
}

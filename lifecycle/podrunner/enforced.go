package podrunner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/podlimits"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// enforcedRecordName is the name of the record with the resources that the
// Runner enforced last for a pod. A runtime does not report all of these
// resources, so a restarted agent needs the record to know what a resize
// changes.
const enforcedRecordName = "resources"

// enforcement holds what was enforced last for one pod.
type enforcement struct {
	// Containers has requests and limits by container name.
	Containers map[string]corev1.ResourceRequirements `json:"containers,omitempty"`
	// Pod has the limits of the pod's cgroup, nil if they are unknown.
	Pod *podLimits `json:"pod,omitempty"`
}

// podLimits are the limits of a pod's cgroup that a resize can change, in CRI
// units.
type podLimits struct {
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	CPUShares   int64 `json:"cpuShares,omitempty"`
	CPUQuota    int64 `json:"cpuQuotaMicros,omitempty"`
	CPUPeriod   int64 `json:"cpuPeriodMicros,omitempty"`
}

// podLimitsOf returns the desired limits of the pod's cgroup, with the pod's
// overhead.
func podLimitsOf(pod *corev1.Pod, limits Limits) podLimits {
	if podspec.QOSClass(pod) == corev1.PodQOSBestEffort {
		return podLimits{CPUShares: podlimits.MinShares} // a BestEffort pod can't be resized
	}
	l := podlimits.Of(pod, limits.quotaPeriod())
	return podLimits{
		MemoryBytes: l.MemoryBytes, CPUShares: l.CPUShares, CPUQuota: l.CPUQuotaMicros,
		CPUPeriod: cmp.Or(l.CPUPeriodMicros, podlimits.DefaultPeriodMicros), // the kernel's default for a cgroup without a quota
	}
}

func (l podLimits) linux() *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: l.MemoryBytes, CpuShares: l.CPUShares, CpuQuota: l.CPUQuota, CpuPeriod: l.CPUPeriod,
	}
}

// Enforced returns, by container name, the requests and limits that the Runner
// enforced last, when it created or resized the container. The result can be
// used as status.Input.Enforced. The map is empty if the requests and limits
// are unknown. If [Config.State] is set, they survive a restart of the agent,
// and Enforced reads them from State even before the first sync of the pod.
func (r *Runner) Enforced(ctx context.Context, uid types.UID) map[string]corev1.ResourceRequirements {
	e, _ := r.enforced(ctx, uid)
	return e.Containers
}

// enforced returns a copy of the pod's record, and reports whether the record
// was in memory. If enforced reads the record from State, it does not store the
// record in memory, because [Runner.Forget] may have been called for the pod.
func (r *Runner) enforced(ctx context.Context, uid types.UID) (e enforcement, kept bool) {
	r.mu.Lock()
	e, kept = r.enforcements[uid]
	r.mu.Unlock()
	if !kept {
		var err error
		if e, err = r.readEnforced(ctx, uid); err != nil {
			r.cfg.Logger.ErrorContext(ctx, "could not read the stored resources of a pod, will use the runtime's status instead", "podUID", uid, "err", err)
		}
	}
	return enforcement{Containers: maps.Clone(e.Containers), Pod: e.Pod}, kept
}

// loadEnforced returns a copy of the record of a pod that is being synced, and
// stores the record in memory.
func (r *Runner) loadEnforced(ctx context.Context, uid types.UID) enforcement {
	e, kept := r.enforced(ctx, uid)
	if !kept && ctx.Err() == nil { // if ctx is done, the next sync reads the record
		r.cacheEnforced(uid, e)
	}
	return enforcement{Containers: maps.Clone(e.Containers), Pod: e.Pod}
}

func (r *Runner) cacheEnforced(uid types.UID, e enforcement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enforcements[uid] = e
}

// forgetEnforced deletes the record of a stopped pod from memory.
func (r *Runner) forgetEnforced(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.enforcements, uid)
}

func (r *Runner) readEnforced(ctx context.Context, uid types.UID) (e enforcement, err error) {
	if r.cfg.State == nil {
		return enforcement{}, nil
	}
	text, err := r.cfg.State.Get(ctx, recordKey(uid, enforcedRecordName))
	if errors.Is(err, fs.ErrNotExist) {
		return enforcement{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		return enforcement{}, fmt.Errorf("read enforced resources of pod %s: %w", uid, err)
	}
	return e, nil
}

// setEnforced calls change with the pod's record, and stores the record if
// change has modified it. A BestEffort pod has no record, because a resize
// would change its QoS class and is therefore not carried out.
func (r *Runner) setEnforced(ctx context.Context, pod *corev1.Pod, change func(*enforcement)) {
	e := r.loadEnforced(ctx, pod.UID)
	if podspec.QOSClass(pod) == corev1.PodQOSBestEffort && e.Containers == nil {
		return
	}
	before, errBefore := json.Marshal(e)
	if e.Containers == nil {
		e.Containers = map[string]corev1.ResourceRequirements{}
	}
	change(&e)
	after, err := json.Marshal(e)
	if errBefore == nil && err == nil && string(before) == string(after) {
		return
	}
	r.cacheEnforced(pod.UID, e)
	if r.cfg.State == nil {
		return
	}
	if err == nil {
		err = r.putRecord(ctx, pod.UID, enforcedRecordName, after)
	}
	if err != nil {
		r.cfg.Logger.ErrorContext(ctx, "could not store the enforced resources of a pod, a restarted agent will use the runtime's status instead",
			"pod", podName(pod), "podUID", pod.UID, "err", err)
	}
}

// setEnforcedContainer records the resources with which c is created.
func (r *Runner) setEnforcedContainer(ctx context.Context, pod *corev1.Pod, c *corev1.Container) {
	r.setEnforced(ctx, pod, func(e *enforcement) { e.Containers[c.Name] = enforceable(pod, c) })
}

// setEnforcedPod records the limits that were set in the pod's cgroup.
func (r *Runner) setEnforcedPod(ctx context.Context, pod *corev1.Pod, node Node) {
	r.setEnforced(ctx, pod, func(e *enforcement) { e.Pod = new(podLimitsOf(pod, node.Limits)) })
}

// setResized records a change of one resource of a container.
func (r *Runner) setResized(ctx context.Context, pod *corev1.Pod, u Resize) {
	c := podspec.Container(&pod.Spec, u.Name)
	if c == nil {
		return
	}
	wanted := enforceable(pod, c)
	r.setEnforced(ctx, pod, func(e *enforcement) {
		is := e.Containers[c.Name]
		e.Containers[c.Name] = corev1.ResourceRequirements{
			Requests: replaced(is.Requests, wanted.Requests, u.Resource), Limits: replaced(is.Limits, wanted.Limits, u.Resource),
		}
	})
}

// replaced returns a copy of list in which one resource has the same amount
// as in the list other. If the list other does not have this resource, the
// copy does not have it either.
func replaced(list, other corev1.ResourceList, name corev1.ResourceName) corev1.ResourceList {
	next := corev1.ResourceList{}
	maps.Copy(next, list)
	delete(next, name)
	if amount, has := other[name]; has {
		next[name] = amount
	}
	return next
}

// enforceable returns the requests and limits of c that a resize can change:
// CPU and memory, with the pod's limit if c has no limit (KEP-2837).
func enforceable(pod *corev1.Pod, c *corev1.Container) corev1.ResourceRequirements {
	only := func(list corev1.ResourceList) corev1.ResourceList {
		return replaced(replaced(nil, list, corev1.ResourceCPU), list, corev1.ResourceMemory)
	}
	return corev1.ResourceRequirements{Requests: only(c.Resources.Requests), Limits: only(effectiveLimits(pod, c))}
}

package podrunner

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Resources are what a pod's cgroups are to have, in the CRI's terms. Only
// memory limit, CPU shares, quota and period are compared. What containers have
// now is in their CRI status; one that says nothing there is left as it is.
type Resources struct {
	// Container returns what a container is to have. Nil: nothing is resized.
	Container func(*corev1.Container) *runtimeapi.LinuxContainerResources
	// PodNow and PodWanted are the same of the pod as a whole, if it has a cgroup
	// that somebody keeps; else nil.
	PodNow, PodWanted *runtimeapi.LinuxContainerResources
}

// Resize is one resource to change while everything runs.
type Resize struct {
	// ID and Name are the container's, or, if Pod is set, the sandbox's id and
	// the pod's name.
	ID, Name string
	Pod      bool
	// Resource is cpu or memory: they change one after the other.
	Resource corev1.ResourceName
	// From and To hold that resource alone. In To a limit that is taken away is
	// -1, because the CRI leaves alone what is zero.
	From, To *runtimeapi.LinuxContainerResources
}

// String explains r in one line.
func (r Resize) String() string {
	kind := "container"
	if r.Pod {
		kind = "pod"
	}
	var what []string
	change := func(name string, from, to int64) {
		if from != to {
			what = append(what, fmt.Sprintf("%s %s → %s", name, limitText(from), limitText(to)))
		}
	}
	change("limit in bytes", r.From.GetMemoryLimitInBytes(), r.To.GetMemoryLimitInBytes())
	change("shares", r.From.GetCpuShares(), r.To.GetCpuShares())
	change("quota", r.From.GetCpuQuota(), r.To.GetCpuQuota())
	change("period", r.From.GetCpuPeriod(), r.To.GetCpuPeriod())
	return fmt.Sprintf("resize %s of %s %s (%s): %s", r.Resource, kind, r.Name, r.ID, strings.Join(what, ", "))
}

func limitText(limit int64) string {
	if limit <= 0 {
		return "none"
	}
	return strconv.FormatInt(limit, 10)
}

// resizes plans what is to change in place: memory and then CPU, and of each the
// pod as a whole first if it grows and last if it shrinks, and containers that
// shrink before those that grow.
func (p *planner) resizes() {
	if p.Resources.Container == nil || p.CreateSandbox != "" {
		return
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		changes := p.containerResizes(name)
		slices.SortStableFunc(changes, func(a, b Resize) int { return cmp.Compare(a.growth(), b.growth()) })
		switch pod := p.podResize(name); {
		case pod == nil:
		case pod.growth() > 0:
			changes = slices.Insert(changes, 0, *pod)
		default:
			changes = append(changes, *pod)
		}
		p.Update = append(p.Update, changes...)
	}
	if len(p.Update) > 0 && !p.keepsClass() {
		p.Update, p.NoUpdate = nil, Reason(fmt.Sprintf("the pod's QoS class would change from %s to %s",
			podspec.QOSClass(p.Pod), podspec.QOSClassOfSpec(p.Pod)))
	}
}

// keepsClass says whether the pod stays in its QoS class, as far as it is known.
func (p *planner) keepsClass() bool { return podspec.QOSClass(p.Pod) == podspec.QOSClassOfSpec(p.Pod) }

// containerResizes are the changes of one resource of the regular containers and
// sidecars that run and go on; sidecars when they have started. An init container is
// done with soon, and an ephemeral one has no resources.
func (p *planner) containerResizes(name corev1.ResourceName) (changes []Resize) {
	for c, init := range podspec.Containers(&p.Pod.Spec) {
		s := p.here(c.Name)
		kind := kindOf(c, init)
		if kind == Init || s == nil || !running(s) || p.kills(s) || kind == Sidecar && !p.started(c, s) {
			continue
		}
		r := Resize{ID: s.GetId(), Name: c.Name, Resource: name}
		if r.between(s.GetResources().GetLinux(), p.Resources.Container(c)) {
			changes = append(changes, r)
		}
	}
	return changes
}

func (p *planner) podResize(name corev1.ResourceName) *Resize {
	r := Resize{ID: p.Status.Sandboxes[0].GetId(), Name: p.Pod.Name, Pod: true, Resource: name}
	if !r.between(p.Resources.PodNow, p.Resources.PodWanted) {
		return nil
	}
	return &r
}

// resizeRestarts says whether a resource of c is to change that does not in place.
func (p *planner) resizeRestarts(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	if p.Resources.Container == nil || len(c.ResizePolicy) == 0 {
		return false
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		r := Resize{Resource: name}
		if podspec.RestartsOnResize(c, name) && r.between(s.GetResources().GetLinux(), p.Resources.Container(c)) {
			return p.keepsClass()
		}
	}
	return false
}

// between fills in the change of r's resource and says whether there is one. A
// limit that is not there may be shown as zero or as -1. Shares that are not shown,
// or not asked for, are no change.
func (r *Resize) between(now, wanted *runtimeapi.LinuxContainerResources) bool {
	if now == nil || wanted == nil {
		return false
	}
	if r.Resource == corev1.ResourceMemory {
		from, to := limit(now.GetMemoryLimitInBytes()), limit(wanted.GetMemoryLimitInBytes())
		if from == to || from == to/page*page {
			return false
		}
		r.From, r.To = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: from}, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: to}
		return true
	}
	fromShares, toShares := cmp.Or(now.GetCpuShares(), wanted.GetCpuShares()), cmp.Or(wanted.GetCpuShares(), now.GetCpuShares())
	if fromShares == asWeight(toShares) {
		fromShares = toShares
	}
	fromQuota, toQuota := limit(now.GetCpuQuota()), limit(wanted.GetCpuQuota())
	fromPeriod, toPeriod := now.GetCpuPeriod(), cmp.Or(wanted.GetCpuPeriod(), now.GetCpuPeriod())
	if fromShares == toShares && fromQuota == toQuota && (toQuota < 0 || fromPeriod == toPeriod) {
		return false
	}
	r.From = &runtimeapi.LinuxContainerResources{CpuShares: fromShares, CpuQuota: fromQuota, CpuPeriod: fromPeriod}
	r.To = &runtimeapi.LinuxContainerResources{CpuShares: toShares, CpuQuota: toQuota, CpuPeriod: toPeriod}
	return true
}

// page is what a kernel rounds memory limits down to, and runtimes show.
const page = 4096

// asWeight is what a runtime shows for shares that it has turned into a weight of
// cgroup v2 and back.
func asWeight(shares int64) int64 {
	const mostShares, mostWeight = 262_144 - 2, 10_000 - 1
	weight := 1 + (shares-2)*mostWeight/mostShares
	return 2 + (weight-1)*mostShares/mostWeight
}

// limit is n, or -1 for what is no limit.
func limit(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

// growth is negative where less is to be had than now, positive where more.
func (r Resize) growth() int {
	most := func(limit int64) uint64 { return uint64(limit) } // -1 is the most
	if r.Resource == corev1.ResourceMemory {
		return cmp.Compare(most(r.To.GetMemoryLimitInBytes()), most(r.From.GetMemoryLimitInBytes()))
	}
	return cmp.Or(
		cmp.Compare(most(r.To.GetCpuQuota()), most(r.From.GetCpuQuota())),
		cmp.Compare(r.To.GetCpuShares(), r.From.GetCpuShares()))
}

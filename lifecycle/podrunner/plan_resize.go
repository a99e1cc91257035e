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

// Resources are what a pod's cgroups have and are to have, in the CRI's terms.
type Resources struct {
	// Container returns what a container is to have. Nil: nothing is resized.
	Container func(*corev1.Container) *runtimeapi.LinuxContainerResources
	// Enforced returns what the running container of that name was created with or last
	// resized to, nil if that is unknown. Then its CRI status counts, and only memory
	// limit, CPU shares, quota and period are compared; a container whose status shows no
	// resources is left as it is. Optional.
	Enforced func(name string) *Enforced
	// PodNow and PodWanted are what the cgroup of the pod as a whole has and is to have,
	// nil if it has none or that is unknown.
	PodNow, PodWanted *runtimeapi.LinuxContainerResources
}

// Enforced is what a container was given: its requests and limits, and what they are in
// the CRI's terms.
type Enforced struct {
	corev1.ResourceRequirements

	Linux *runtimeapi.LinuxContainerResources
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

// containerResizes are the changes of one resource of the containers that run and go on.
// An ephemeral container has no resources.
func (p *planner) containerResizes(name corev1.ResourceName) (changes []Resize) {
	for c, init := range podspec.Containers(&p.Pod.Spec) {
		s := p.here(c.Name)
		if s == nil || !running(s) || p.kills(s) {
			continue
		}
		if r, differs := p.containerResize(c, s, name); differs && p.mayResize(c, s, kindOf(c, init)) {
			changes = append(changes, r)
		}
	}
	return changes
}

// mayResize reports whether a container that runs is resized: a sidecar when it has
// started, and of the init containers the one that the pod's start has reached.
func (p *planner) mayResize(c *corev1.Container, s *runtimeapi.ContainerStatus, kind ContainerKind) bool {
	switch kind {
	case Sidecar:
		return p.started(c, s)
	case Init:
		turn := p.initTurn()
		return turn < len(p.Pod.Spec.InitContainers) && p.Pod.Spec.InitContainers[turn].Name == c.Name
	default:
		return true
	}
}

// containerResize returns the change of one resource of c, which runs as s, and reports
// whether there is one. If it is known what was enforced last, requests and limits are
// compared, because the pod's status shows both and a cgroup may depend on both.
func (p *planner) containerResize(c *corev1.Container, s *runtimeapi.ContainerStatus, name corev1.ResourceName) (Resize, bool) {
	r := Resize{ID: s.GetId(), Name: c.Name, Resource: name}
	wanted := p.Resources.Container(c)
	is := p.enforced(c.Name)
	if is == nil {
		return r, r.between(s.GetResources().GetLinux(), wanted)
	}
	r.fill(is.Linux, wanted)
	return r, !sameAmount(is.ResourceRequirements, enforceable(p.Pod, c), name)
}

func (p *planner) enforced(name string) *Enforced {
	if p.Resources.Enforced == nil {
		return nil
	}
	return p.Resources.Enforced(name)
}

// sameAmount reports whether request and limit of a resource are equal. No request or
// limit is one of zero, as in the kubelet.
func sameAmount(a, b corev1.ResourceRequirements, name corev1.ResourceName) bool {
	amount := func(list corev1.ResourceList) int64 {
		if name == corev1.ResourceCPU {
			return list.Cpu().MilliValue()
		}
		return list.Memory().Value()
	}
	return amount(a.Requests) == amount(b.Requests) && amount(a.Limits) == amount(b.Limits)
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
		if !podspec.RestartsOnResize(c, name) {
			continue
		}
		if _, differs := p.containerResize(c, s, name); differs {
			return p.keepsClass()
		}
	}
	return false
}

// between fills in the change of r's resource and reports whether there is one, as far as
// a runtime shows what a container has: shares that it does not show, and what it rounds,
// are no change.
func (r *Resize) between(now, wanted *runtimeapi.LinuxContainerResources) bool {
	if now == nil || wanted == nil {
		return false
	}
	if r.Resource == corev1.ResourceMemory {
		from, to := limit(now.GetMemoryLimitInBytes()), limit(wanted.GetMemoryLimitInBytes())
		if from == to || from == to/page*page {
			return false
		}
		r.fill(now, wanted)
		return true
	}
	shares, quota := cmp.Or(wanted.GetCpuShares(), now.GetCpuShares()), limit(wanted.GetCpuQuota())
	sameShares := slices.Contains([]int64{0, shares, asWeight(shares)}, now.GetCpuShares())
	samePeriod := quota < 0 || now.GetCpuPeriod() == cmp.Or(wanted.GetCpuPeriod(), now.GetCpuPeriod())
	if sameShares && samePeriod && limit(now.GetCpuQuota()) == quota {
		return false
	}
	r.fill(now, wanted)
	if sameShares {
		r.From.CpuShares = shares
	}
	return true
}

// fill fills in what r's resource is and is to be. No limit, which may be shown as zero
// or as -1, is -1. Shares and a period that one side lacks are those of the other.
func (r *Resize) fill(now, wanted *runtimeapi.LinuxContainerResources) {
	if r.Resource == corev1.ResourceMemory {
		r.From = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: limit(now.GetMemoryLimitInBytes())}
		r.To = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: limit(wanted.GetMemoryLimitInBytes())}
		return
	}
	r.From = &runtimeapi.LinuxContainerResources{
		CpuShares: cmp.Or(now.GetCpuShares(), wanted.GetCpuShares()), CpuQuota: limit(now.GetCpuQuota()), CpuPeriod: now.GetCpuPeriod(),
	}
	r.To = &runtimeapi.LinuxContainerResources{
		CpuShares: cmp.Or(wanted.GetCpuShares(), now.GetCpuShares()), CpuQuota: limit(wanted.GetCpuQuota()),
		CpuPeriod: cmp.Or(wanted.GetCpuPeriod(), now.GetCpuPeriod()),
	}
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

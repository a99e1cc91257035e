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

// Resources are the current and the desired resources of a pod's cgroups, as
// CRI messages.
type Resources struct {
	// Container returns the desired resources of a container. If Container is
	// nil, nothing is resized.
	Container func(*corev1.Container) *runtimeapi.LinuxContainerResources
	// Enforced returns the resources with which the running container of the
	// given name was created or last resized. It returns nil if they are
	// unknown. Plan then uses the CRI status of the container instead, and
	// compares only memory limit, CPU shares, quota and period. If that status
	// has no resources either, the container is not resized. Optional.
	Enforced func(name string) *Enforced
	// PodNow and PodWanted are the current and the desired resources of the
	// pod's cgroup. They are nil if the pod has no cgroup or if the resources
	// are unknown.
	PodNow, PodWanted *runtimeapi.LinuxContainerResources
}

// Enforced holds the enforced requests and limits of a container. Linux has the
// same values as a CRI message.
type Enforced struct {
	corev1.ResourceRequirements

	Linux *runtimeapi.LinuxContainerResources
}

// Resize is the change of one resource of a running container or of its pod.
type Resize struct {
	// ID and Name identify the container. If Pod is true, ID is the ID of the
	// sandbox and Name is the name of the pod.
	ID, Name string
	Pod      bool
	// Resource is cpu or memory. A Resize changes only this resource.
	Resource corev1.ResourceName
	// From and To have only the values of this resource. In To, a removed limit
	// is -1, because the CRI ignores zero.
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

// resizes plans the in-place changes of resources: first of memory, then of
// CPU. For each resource, the pod's cgroup comes first if it grows and last if
// it shrinks. Containers that shrink come before containers that grow.
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

// keepsClass reports whether the resources in the spec keep the pod in its QoS
// class.
func (p *planner) keepsClass() bool { return podspec.QOSClass(p.Pod) == podspec.QOSClassOfSpec(p.Pod) }

// containerResizes returns the changes of one resource for all containers that
// keep running. Ephemeral containers have no resources.
func (p *planner) containerResizes(name corev1.ResourceName) (changes []Resize) {
	for c, init := range podspec.Containers(&p.Pod.Spec) {
		s := p.current(c.Name)
		if s == nil || !running(s) || p.kills(s) {
			continue
		}
		if r, differs := p.containerResize(c, s, name); differs && p.mayResize(c, s, kindOf(c, init)) {
			changes = append(changes, r)
		}
	}
	return changes
}

// mayResize reports whether a running container may be resized. A sidecar may
// be resized only after it has started, and any other init container only if it
// is the current init container.
func (p *planner) mayResize(c *corev1.Container, s *runtimeapi.ContainerStatus, kind ContainerKind) bool {
	switch kind {
	case Sidecar:
		return p.started(c, s)
	case Init:
		index := p.currentInit()
		return index < len(p.Pod.Spec.InitContainers) && p.Pod.Spec.InitContainers[index].Name == c.Name
	default:
		return true
	}
}

// containerResize returns the change of one resource of c, and reports whether
// the resource changes. s is the running instance of c. If the enforced
// resources are known, containerResize compares requests and limits with the
// spec, because the pod's status shows both and a cgroup may depend on both.
// Otherwise it compares the CRI status of s with the spec.
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

// sameAmount reports whether a and b have the same request and the same limit
// of a resource. A missing request or limit counts as zero, as in the kubelet.
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

// resizeRestarts reports whether a resource of c changes, and the resize policy
// of c requires a restart for this resource. If the pod's QoS class would
// change, it returns false, because the resize is then not carried out.
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

// between reports whether the resource changes. If so, it sets From and To of
// r. Shares that the runtime does not report count as equal. Values that differ
// only because the runtime has rounded them count as equal too.
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

// fill sets From and To from the messages now and wanted. A missing limit,
// which may be reported as zero or -1, becomes -1. If one of the two messages
// has no shares, the shares of the other message are used. If wanted has no
// period, To has the period of From.
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

// page is the page size. The kernel rounds memory limits down to a multiple of
// the page size, and runtimes report the rounded value.
const page = 4096

// asWeight returns the shares that a runtime reports if it has converted the
// given shares to a weight of cgroup v2 and back.
func asWeight(shares int64) int64 {
	const mostShares, mostWeight = 262_144 - 2, 10_000 - 1
	weight := 1 + (shares-2)*mostWeight/mostShares
	return 2 + (weight-1)*mostShares/mostWeight
}

// limit returns n, or -1 if n means no limit.
func limit(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

// growth returns a negative number if the resource shrinks, and a positive
// number if the resource grows.
func (r Resize) growth() int {
	most := func(limit int64) uint64 { return uint64(limit) } // -1 becomes the largest value
	if r.Resource == corev1.ResourceMemory {
		return cmp.Compare(most(r.To.GetMemoryLimitInBytes()), most(r.From.GetMemoryLimitInBytes()))
	}
	return cmp.Or(
		cmp.Compare(most(r.To.GetCpuQuota()), most(r.From.GetCpuQuota())),
		cmp.Compare(r.To.GetCpuShares(), r.From.GetCpuShares()))
}

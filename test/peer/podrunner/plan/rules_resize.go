package plan

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// resizable returns the containers that run and have resources in the spec.
func (s *State) resizable() (all []*Container) {
	for _, c := range s.Containers {
		if c.Name != keeper && c.State == running && s.inSpec(c.Name) && !s.isKind(c.Name, podrunner.Ephemeral) && s.here(c.Name) == c {
			all = append(all, c)
		}
	}
	return all
}

// resized makes the kubelet's record of a container's resources equal to the spec, and
// reports whether they differed.
func (s *State) resized(c *Container) bool {
	spec, _ := s.spec(c.Name)
	return c.takenFor(s.actuated(spec))
}

func (c *Container) takenFor(has corev1.ResourceRequirements) (changed bool) {
	changed = !reflect.DeepEqual(c.Has, has)
	c.Has = has
	return changed
}

func memoryInUse() deviation {
	return deviation{
		Rule: rule("memory limit below current usage", judge.Deliberate, "The kubelet does not lower a memory limit below the memory that is in use; this package does not check how much memory is in use."),
		state: func(s *State) bool {
			used := s.Used
			s.Used = 0
			return used != 0
		},
	}
}

func classChange() deviation {
	return deviation{
		Rule: rule("resize that changes the QoS class", judge.Deliberate, "The kubelet would carry out a resize that changes the pod's QoS class. This package does not carry it out, and the plan reports it."),
		state: func(s *State) bool {
			if s.sameClass() {
				return false
			}
			for _, c := range s.resizable() {
				s.resized(c)
			}
			s.PodHas, s.Cgroup = s.Pod.Spec.Resources, podCgroup(s.Pod)
			return true
		},
	}
}

// sameClass reports whether the pod keeps its QoS class.
func (s *State) sameClass() bool {
	return podspec.QOSClass(s.policies) == podspec.QOSClassOfSpec(s.policies)
}

func podLevelLimitsLate() deviation {
	return deviation{
		Rule: rule("missed pod-level resize of created containers", judge.KubeletDefect, "If a container was created but does not run yet when the pod's limits are resized, it keeps the old limits in the kubelet. This package resizes the container when it runs."),
		state: func(s *State) bool {
			if s.PodHas == nil {
				return false
			}
			lacks := func(c *Container) bool {
				for name, limit := range s.PodHas.Limits {
					if has := c.Has.Limits[name]; has.IsZero() && !limit.IsZero() {
						return true
					}
				}
				return false
			}
			if !slices.ContainsFunc(s.resizable(), lacks) {
				return false
			}
			s.PodHas = &corev1.ResourceRequirements{Requests: s.PodHas.Requests} // each container has its share of the pod's limits
			return true
		},
	}
}

func podLevelShares() deviation {
	return deviation{
		Rule: rule("CPU shares from a pod-level limit", judge.KubeletDefect, "If a container requests no CPU and gets its limit from the pod, the kubelet computes its CPU shares from that limit when it creates the container. When the kubelet resizes the container, it sets the minimum shares. Here the shares are always computed from the limit."),
		state: func(s *State) (changed bool) {
			if s.Pod.Spec.Resources == nil {
				return false
			}
			request := func(c *corev1.ResourceRequirements, limits corev1.ResourceList) {
				_, asks := c.Requests[corev1.ResourceCPU]
				if limit, has := limits[corev1.ResourceCPU]; has && !asks {
					c.Requests = replaced(c.Requests, corev1.ResourceList{corev1.ResourceCPU: limit}, corev1.ResourceCPU)
					changed = true
				}
			}
			for i := range s.Starts {
				from := &s.Starts[i].From
				if s.isKind(from.Name, podrunner.Ephemeral) {
					continue
				}
				from.Resources = *from.Resources.DeepCopy()
				request(&from.Resources, s.actuated(from).Limits)
			}
			for _, c := range s.resizable() {
				has := *c.Has.DeepCopy()
				if s.resizedToFewestShares(c) {
					delete(has.Requests, corev1.ResourceCPU)
					c.Linux = merged(c.Linux, &runtimeapi.LinuxContainerResources{CpuShares: sharesOf(has.Limits)})
				}
				request(&has, has.Limits)
				c.Has = has
			}
			for c := range podspec.Containers(&s.Pod.Spec) {
				request(&c.Resources, s.actuated(c).Limits)
			}
			return changed
		},
	}
}

// resizedToFewestShares reports whether the kubelet has resized a container without a CPU
// request, for which it recorded a request of zero, and the container has the limit of its
// spec.
func (s *State) resizedToFewestShares(c *Container) bool {
	spec, _ := s.spec(c.Name)
	_, asks := spec.Resources.Requests[corev1.ResourceCPU]
	has, recalled := c.Has.Requests[corev1.ResourceCPU]
	limit := s.actuated(spec).Limits[corev1.ResourceCPU]
	return !asks && recalled && has.IsZero() && limit.Cmp(c.Has.Limits[corev1.ResourceCPU]) == 0
}

// replaced returns a copy of list with the amount of one resource that another list has.
func replaced(list, other corev1.ResourceList, name corev1.ResourceName) corev1.ResourceList {
	list = list.DeepCopy()
	if list == nil {
		list = corev1.ResourceList{}
	}
	delete(list, name)
	if amount, has := other[name]; has {
		list[name] = amount
	}
	return list
}

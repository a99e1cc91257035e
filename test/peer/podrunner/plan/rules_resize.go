package plan

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

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

// resized makes the kubelet take a container's resources for those of the spec, and
// reports whether they were others.
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
		Rule: rule("memory in use", judge.Deliberate, "The kubelet takes no memory away from containers that use more than they are to have; ours is not held back by what is in use."),
		state: func(s *State) bool {
			used := s.Used
			s.Used = 0
			return used != 0
		},
	}
}

func shownLate() deviation {
	return deviation{
		Rule: defect("status from before a resize", "13a", "The kubelet recalls what it gave a container; ours compares with the runtime's status, which is not read again after a resize."),
		state: func(s *State) (changed bool) {
			for _, c := range s.resizable() {
				changed = c.late && c.takenFor(c.ShownHas) || changed
			}
			return changed
		},
		facts: func(s *State, f judge.Facts) {
			for _, c := range s.resizable() {
				spec, _ := s.spec(c.Name)
				// With the memory, the kubelet sends the CPU that it takes for the container's.
				if is := linuxOf(s.Pod, spec); c.late && c.Shown != nil && cpuGrows(shownAs(c.Shown, is), is) == "" && f["resize cpu "+c.ID] != "" {
					forget(f, "resize cpu "+c.ID, "resize order of pod and cpu")
					s.renewResizeOrder(f)
				}
			}
		},
	}
}

func noResourcesShown() deviation {
	return deviation{
		Rule: defect("runtime that shows no resources", "new", "The kubelet recalls what it gave a container; ours does not resize one whose resources the runtime does not show."),
		state: func(s *State) (changed bool) {
			for _, c := range s.resizable() {
				changed = c.Shown == nil && s.resized(c) || changed
			}
			return changed
		},
	}
}

func classChange() deviation {
	return deviation{
		Rule: rule("change of the QoS class", judge.Deliberate, "A resize that would change the pod's QoS class is left undone, and the plan says so."),
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

// sameClass reports whether the pod stays in its QoS class.
func (s *State) sameClass() bool {
	return podspec.QOSClass(s.policies) == podspec.QOSClassOfSpec(s.policies)
}

func podLevelShares() deviation {
	return deviation{
		Rule: rule("shares of a limit of the pod", judge.KubeletDefect, "A container that requests no CPU and has its limit from the pod gets shares of that limit when the kubelet makes it, and the fewest when the kubelet resizes it; in ours those of the limit."),
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
				from.Resources = *from.Resources.DeepCopy()
				request(&from.Resources, s.actuated(from).Limits)
			}
			for _, c := range s.resizable() {
				has := *c.Has.DeepCopy()
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

func initResize() deviation {
	return deviation{
		Rule: defect("resize of a running init container", "new", "The kubelet resizes init containers that run; ours only sidecars."),
		state: func(s *State) (changed bool) {
			for _, c := range s.resizable() {
				changed = s.isKind(c.Name, podrunner.Init) && s.resized(c) || changed
			}
			return changed
		},
	}
}

// requestsOnly and idleResize are about changes that the runtime does not see.
func requestsOnly() deviation {
	return deviation{
		Rule: defect("restart for a request", "new", "The kubelet restarts a container whose resize policy says so when its request changes alone; ours when what its cgroup has changes."),
		state: func(s *State) bool {
			return s.idle(func(spec *corev1.Container, name corev1.ResourceName) bool {
				return podspec.RestartsOnResize(spec, name)
			})
		},
	}
}

func idleResize() deviation {
	return deviation{
		Rule: rule("resize without a change", judge.Deliberate, "The kubelet calls the runtime for a resize that changes nothing in the container's cgroup, such as of its memory request; ours does not."),
		state: func(s *State) bool {
			return s.idle(func(*corev1.Container, corev1.ResourceName) bool { return true })
		},
		facts: func(_ *State, f judge.Facts) { forget(f, "resize nothing pod") },
	}
}

// idle makes the kubelet take resources for those of the spec whose change no
// cgroup would see.
func (s *State) idle(counts func(*corev1.Container, corev1.ResourceName) bool) (changed bool) {
	for _, c := range s.resizable() {
		spec, _ := s.spec(c.Name)
		if c.Shown == nil {
			continue
		}
		is := linuxOf(s.Pod, spec)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			same := c.Shown.GetMemoryLimitInBytes() == is.GetMemoryLimitInBytes() || c.Shown.GetMemoryLimitInBytes() == rounded(is).GetMemoryLimitInBytes()
			if name == corev1.ResourceCPU {
				same = (c.Shown.GetCpuShares() == is.GetCpuShares() || c.Shown.GetCpuShares() == rounded(is).GetCpuShares()) && c.Shown.GetCpuQuota() == is.GetCpuQuota()
			}
			if same && counts(spec, name) {
				has := *c.Has.DeepCopy()
				has.Requests = replaced(has.Requests, spec.Resources.Requests, name)
				has.Limits = replaced(has.Limits, s.actuated(spec).Limits, name)
				changed = c.takenFor(has) || changed
			}
		}
	}
	return changed
}

// replaced returns list with the amount of one resource that another list has.
func replaced(list, other corev1.ResourceList, name corev1.ResourceName) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	delete(list, name)
	if amount, has := other[name]; has {
		list[name] = amount
	}
	return list
}

package fakecri

import (
	"cmp"
	"maps"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// selects reports whether labels match all entries of selector.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// wantsContainer reports whether a container matches a filter.
func wantsContainer(f *runtimeapi.ContainerFilter, id, pod string, state runtimeapi.ContainerState, labels map[string]string) bool {
	return (f.GetId() == "" || f.GetId() == id) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == pod) &&
		(f.GetState() == nil || f.GetState().GetState() == state) && selects(f.GetLabelSelector(), labels)
}

// wantsSandbox reports whether a sandbox matches a filter.
func wantsSandbox(f *runtimeapi.PodSandboxFilter, id string, state runtimeapi.PodSandboxState, labels map[string]string) bool {
	return (f.GetId() == "" || f.GetId() == id) && (f.GetState() == nil || f.GetState().GetState() == state) &&
		selects(f.GetLabelSelector(), labels)
}

// selectContainers returns the containers that match a filter. If the filter has the id of
// a container or of a sandbox, selectContainers checks only this container or the
// containers of this sandbox.
func (n *Node) selectContainers(filter *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	candidates := n.containers.only(filter.GetId())
	if s, ok := n.sandboxes.byID[filter.GetPodSandboxId()]; ok && filter.GetId() == "" {
		candidates = s.containers
	}
	var wanted func(*container) bool
	if filter.GetId() != "" || filter.GetPodSandboxId() != "" || filter.GetState() != nil || len(filter.GetLabelSelector()) > 0 {
		wanted = func(c *container) bool {
			return wantsContainer(filter, c.id, c.pod.id, c.state, c.config.GetLabels())
		}
	}
	return items(candidates, wanted, (*container).item)
}

// selectSandboxes returns the sandboxes that match a filter.
func (n *Node) selectSandboxes(filter *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	var wanted func(*sandbox) bool
	if filter.GetId() != "" || filter.GetState() != nil || len(filter.GetLabelSelector()) > 0 {
		wanted = func(s *sandbox) bool { return wantsSandbox(filter, s.id, s.state(), s.config.GetLabels()) }
	}
	return items(n.sandboxes.only(filter.GetId()), wanted, (*sandbox).item)
}

// item returns the list entry of s. It builds the message field by field instead of cloning
// it, for speed, because agents list every second.
func (s *sandbox) item() *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id:             s.id,
		Metadata:       s.metadata(),
		State:          s.state(),
		CreatedAt:      s.createdAt,
		Labels:         maps.Clone(s.config.GetLabels()),
		Annotations:    maps.Clone(s.config.GetAnnotations()),
		RuntimeHandler: s.handler,
	}
}

// status returns the status of s with the given condition, which is the current or an
// earlier condition of s.
func (s *sandbox) status(was condition) *runtimeapi.PodSandboxStatus {
	at := sandbox{condition: was}
	options := s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	return &runtimeapi.PodSandboxStatus{
		Id:             s.id,
		Metadata:       s.metadata(),
		State:          at.state(),
		CreatedAt:      s.createdAt,
		Network:        &runtimeapi.PodSandboxNetworkStatus{Ip: was.ip},
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: proto.CloneOf(options)}},
		Labels:         maps.Clone(s.config.GetLabels()),
		Annotations:    maps.Clone(s.config.GetAnnotations()),
		RuntimeHandler: s.handler,
	}
}

func (s *sandbox) metadata() *runtimeapi.PodSandboxMetadata {
	m := s.config.GetMetadata()
	return &runtimeapi.PodSandboxMetadata{
		Name: m.GetName(), Namespace: m.GetNamespace(), Uid: m.GetUid(), Attempt: m.GetAttempt(),
	}
}

func (c *container) metadata() *runtimeapi.ContainerMetadata {
	return &runtimeapi.ContainerMetadata{Name: c.config.GetMetadata().GetName(), Attempt: c.config.GetMetadata().GetAttempt()}
}

// item returns the list entry of c. Like the list entry of a sandbox, it is built field by
// field, for speed.
func (c *container) item() *runtimeapi.Container {
	spec := c.config.GetImage()
	return &runtimeapi.Container{
		Id:           c.id,
		PodSandboxId: c.pod.id,
		Metadata:     c.metadata(),
		Image: &runtimeapi.ImageSpec{
			Image: spec.GetImage(), Annotations: maps.Clone(spec.GetAnnotations()),
			UserSpecifiedImage: spec.GetUserSpecifiedImage(), RuntimeHandler: spec.GetRuntimeHandler(),
		},
		ImageRef:    c.imageID,
		ImageId:     c.imageID,
		State:       c.state,
		CreatedAt:   c.createdAt,
		Labels:      maps.Clone(c.config.GetLabels()),
		Annotations: maps.Clone(c.config.GetAnnotations()),
	}
}

// status returns the status of c in the state l, which is the current or an earlier state
// of c. While the image of c is in the store, the status has the image's first tag and
// digest.
func (n *Node) status(c *container, l life) *runtimeapi.ContainerStatus {
	spec, ref := proto.CloneOf(c.config.GetImage()), c.imageID
	if img, ok := n.images.find(c.imageID); ok {
		if len(img.tags) > 0 {
			spec = &runtimeapi.ImageSpec{Image: img.tags[0]}
		}
		if len(img.digests) > 0 {
			ref = img.digests[0]
		}
	}
	mounts := make([]*runtimeapi.Mount, len(c.config.GetMounts()))
	for i, m := range c.config.GetMounts() {
		mounts[i] = proto.CloneOf(m)
	}
	return &runtimeapi.ContainerStatus{
		Id:          c.id,
		Metadata:    c.metadata(),
		State:       l.state,
		CreatedAt:   c.createdAt,
		StartedAt:   l.startedAt,
		FinishedAt:  l.finishedAt,
		ExitCode:    l.exitCode,
		Image:       spec,
		ImageRef:    ref,
		ImageId:     c.imageID,
		Reason:      l.shownReason(),
		Message:     l.message,
		Labels:      maps.Clone(c.config.GetLabels()),
		Annotations: maps.Clone(c.config.GetAnnotations()),
		Mounts:      mounts,
		LogPath:     c.logPath,
		Resources:   l.shownResources(),
		User:        c.user(),
		StopSignal:  cmp.Or(c.config.GetStopSignal(), sigterm),
	}
}

// sigterm is the CRI's number of SIGTERM. The name of the constant differs between versions
// of cri-api.
const sigterm runtimeapi.Signal = 23

// user returns the user that the container runs as: root, unless its config has numeric
// IDs. It ignores user names and the image's user, because it would need the image's files
// to resolve them.
func (c *container) user() *runtimeapi.ContainerUser {
	security := c.config.GetLinux().GetSecurityContext()
	uid, gid := security.GetRunAsUser().GetValue(), security.GetRunAsGroup().GetValue()
	groups := append([]int64{gid}, security.GetSupplementalGroups()...)
	return &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: uid, Gid: gid, SupplementalGroups: groups}}
}

// shownResources returns the resources for the status. The result is never nil, as in
// containerd.
func (l life) shownResources() *runtimeapi.ContainerResources {
	if l.resources == nil {
		return &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{}}
	}
	return proto.CloneOf(l.resources)
}

func (l life) shownReason() string {
	switch {
	case l.reason != "" || l.state != runtimeapi.ContainerState_CONTAINER_EXITED:
		return l.reason
	case l.exitCode == 0:
		return reasonCompleted
	}
	return reasonError
}

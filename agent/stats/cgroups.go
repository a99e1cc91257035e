package stats

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Cgroups reads the cgroups of the machine, of all pods and their QoS classes, and of the given
// containers and their pods. Each call reads the cgroups again, and makes no call to the runtime.
// The sizes of writable layers come from the last refresh. A container without a cgroup is missing
// in the result. If the root cgroup can't be read, or if ctx is done, Cgroups returns an error, and
// the figures that it has read.
//
// Cgroups expects the cgroups of pods at the kubelet's paths. In the cgroup of a pod, it expects
// the names that containerd and CRI-O use for the cgroups of containers. If a pod has no cgroup,
// Cgroups searches for the pod's containers in /k8s.io, the parent cgroup that containerd then
// uses.
func (p *Provider) Cgroups(ctx context.Context, containers []Container) (Usage, error) {
	h, pods := p.node.where()
	r := usageReader{
		cgroupReader: cgroupReader{hierarchy: h}, proc: p.cfg.ProcRoot,
		out: Usage{Machine: maps.Clone(p.processors())},
	}
	r.readMounts()
	r.root(p.filesystems())
	if len(r.out.Cgroups[0].Figures) == 0 {
		return r.out, fmt.Errorf("could not read any figure of the root cgroup in %s", h.root)
	}
	if pods != "" {
		r.podsAndClasses(pods)
	}
	l := r.layers(p)
	for _, of := range byPod(containers) {
		if err := ctx.Err(); err != nil {
			return r.out, err
		}
		r.pod(h.findPod(pods, of[0].Pod), of, l)
	}
	return r.out, nil
}

// byPod returns the containers of each pod. The pods are in the order of their first containers.
func byPod(containers []Container) (all [][]Container) {
	at := map[types.UID]int{}
	for _, c := range containers {
		i, ok := at[c.Pod]
		if !ok {
			i = len(all)
			at[c.Pod] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], c)
	}
	return all
}

// filesystems returns paths on the node's filesystems of volumes, images and writable layers.
func (p *Provider) filesystems() []string {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	return []string{p.node.nodeFS, p.node.imageFS, p.node.writeFS}
}

// layers has the filesystem of the writable layers, and the size of each layer by the ID of its
// container.
type layers struct {
	fs   FilesystemUsage
	used map[string]uint64
}

// layers measures the filesystem of the writable layers, and returns it with the sizes of the
// layers that the runtime last reported. The result is empty if the filesystem can't be measured.
func (r *usageReader) layers(p *Provider) (l layers) {
	fs, ok := r.filesystem(p.filesystems()[2])
	if !ok {
		return l
	}
	l = layers{fs: fs, used: map[string]uint64{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, all := range p.runtime.containers {
		for _, c := range all {
			if used := c.GetWritableLayer().GetUsedBytes(); used != nil {
				l.used[c.GetAttributes().GetId()] = used.GetValue()
			}
		}
	}
	return l
}

// podsAndClasses adds the cgroup of all pods and the cgroups of the QoS classes.
func (r *usageReader) podsAndClasses(pods string) {
	r.add(Cgroup{Path: pods})
	for _, name := range r.below(pods) {
		if class := strings.TrimSuffix(name, ".slice"); strings.HasSuffix(class, "burstable") || strings.HasSuffix(class, "besteffort") {
			r.add(Cgroup{Path: filepath.Join(pods, name)})
		}
	}
}

// pod adds the cgroups of a pod and of its containers. The path of the pod's cgroup is empty if the
// pod has no cgroup.
func (r *usageReader) pod(cgroup string, containers []Container, l layers) {
	paths := map[string]string{}
	if cgroup != "" {
		r.add(Cgroup{Path: cgroup, Pod: containers[0].Pod})
		for _, name := range r.below(cgroup) {
			paths[containerIn(name)] = filepath.Join(cgroup, name)
		}
	}
	for _, c := range containers {
		path := paths[c.ID]
		if path == "" {
			path = r.withoutPod(c.ID)
		}
		if path == "" {
			continue // the container has not started yet, or has ended
		}
		g := Cgroup{Path: path, Pod: c.Pod, ContainerID: c.ID}
		if used, ok := l.used[c.ID]; ok {
			layer := l.fs
			layer.UsedBytes = used
			g.Filesystems = []FilesystemUsage{layer}
		}
		process := r.add(g)
		if c.IsSandbox && process != "" {
			last := &r.out.Cgroups[len(r.out.Cgroups)-1]
			last.Interfaces = r.interfaces(process)
		}
	}
}

// withoutPod returns the cgroup of a container whose pod has no cgroup. It returns an empty path
// if the cgroup does not exist.
func (r *usageReader) withoutPod(id string) string {
	if path := filepath.Join("/k8s.io", id); id != "" && filepath.Base(path) == id && r.has(path) {
		return path
	}
	return ""
}

// containerIn returns the ID of the container whose cgroup has this name. Runtimes use the ID
// itself or, with the systemd driver, PREFIX-ID.scope. The result is empty for the cgroup of a
// conmon process, with which CRI-O monitors a container.
func containerIn(name string) string {
	if strings.HasPrefix(name, "crio-conmon-") {
		return ""
	}
	name = strings.TrimSuffix(name, ".scope")
	return name[strings.LastIndexByte(name, '-')+1:]
}

// below returns the names of the cgroups directly below a cgroup. The result is empty if the
// cgroup was removed.
func (r *usageReader) below(cgroup string) (names []string) {
	_ = listFolders(r.file("memory", cgroup, ""), &names)
	return names
}

package containergc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A cluster is the current state of a world: either the state on which a side acts, or the
// state of a model.
type cluster struct {
	w          *World
	disk       disk
	began      time.Time
	step       Step
	offset     time.Duration // of the wall clock
	pods       map[string]string
	boxes      []*box
	containers []*container
}

// A disk stores the logs.
type disk interface {
	write(file string) error
	link(name, file string) error
}

// A container is a container in the runtime.
type container struct {
	*Container
	state       runtimeapi.ContainerState
	made, ended time.Time // by the wall clock
	fixed       bool
}

// A box is a sandbox in the runtime.
type box struct {
	*Box
	made time.Time
}

func newCluster(w *World, now time.Time, d disk) *cluster {
	c := &cluster{w: w, disk: d, began: now, pods: map[string]string{}}
	for _, p := range w.Pods {
		c.pods[p.UID] = p.State
	}
	return c
}

// begin applies the changes that a step makes before its pass.
func (n *cluster) begin(i int, s Step, now time.Time) error {
	n.step = s
	n.offset += s.Clock
	for pod, state := range s.Pods {
		n.pods[n.w.Pods[pod].UID] = state
	}
	for _, b := range n.w.Boxes {
		if b.From == i {
			n.boxes = append(n.boxes, &box{b, n.began.Add(-b.Made)})
		}
	}
	for _, c := range n.w.Containers {
		if c.From != i {
			continue
		}
		made := &container{Container: c, state: c.State, made: n.began.Add(-c.Made)}
		if c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			made.ended = n.began.Add(-c.Ended)
		}
		n.containers = append(n.containers, made)
		if err := n.writeLogs(c); err != nil {
			return err
		}
	}
	return n.change(s, now)
}

func (n *cluster) change(s Step, now time.Time) error {
	if c := n.the(s.End); c != nil && c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		c.state, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, now.Add(n.offset)
	}
	if c := n.the(s.Heal); c != nil {
		c.fixed = true
	}
	if c := n.the(s.Vanish); c != nil {
		n.remove(c)
	}
	if c := n.the(s.LogsAppear); c != nil && c.Log == "missing" && n.w.Folder == "" {
		return n.disk.write(n.w.log(c.Container))
	}
	return nil
}

func (n *cluster) remove(c *container) {
	n.containers = slices.DeleteFunc(n.containers, func(other *container) bool { return other == c })
}

func (n *cluster) removeBox(id string) {
	n.boxes = slices.DeleteFunc(n.boxes, func(b *box) bool { return b.ID == id })
}

// the returns container i if it exists, or nil.
func (n *cluster) the(i int) *container {
	for _, c := range n.containers {
		if i >= 0 && c.Container == n.w.Containers[i] {
			return c
		}
	}
	return nil
}

// find returns the container with an ID, or the only container whose ID has this prefix.
func (n *cluster) find(id string) *container {
	var found *container
	for _, c := range n.containers {
		if strings.HasPrefix(c.ID, id) {
			if found != nil {
				return nil
			}
			found = c
		}
	}
	return found
}

// state returns the state of a pod in the pod workers.
func (n *cluster) state(uid types.UID) string {
	if state, ok := n.pods[string(uid)]; ok {
		return state
	}
	return "gone"
}

func (n *cluster) ShouldPodContentBeRemoved(uid types.UID) bool {
	return n.state(uid) == "gone" || n.state(uid) == "evicted"
}

func (n *cluster) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return n.state(uid) == "gone" || n.state(uid) == "ended"
}

func (w *World) folder(pod int) string {
	return fmt.Sprintf("pods/default_%s_%s", w.Pods[pod].Name, w.Pods[pod].UID)
}

func (w *World) log(c *Container) string {
	return fmt.Sprintf("%s/%s/%d.log", w.folder(c.Pod), c.Name, c.Attempt)
}

// link returns the name of a container's link.
func (w *World) link(c *Container) string {
	name := fmt.Sprintf("%s_default_%s-%s", w.Pods[c.Pod].Name, c.Name, c.ID)
	return name[:min(len(name), 251)] + ".log"
}

const rotated = ".20000101-000000.gz"

func (n *cluster) writeLogs(c *Container) error {
	if c.Log == "none" || n.w.Folder != "" {
		return nil
	}
	log := n.w.log(c)
	var err error
	if c.Log != "missing" {
		err = n.disk.write(log)
	}
	if c.Log != "" {
		err = errors.Join(err, n.disk.write(log+rotated))
	}
	if c.Odd {
		err = errors.Join(err, n.disk.write(n.w.folder(c.Pod)+"/note"), n.disk.write(n.w.folder(c.Pod)+"/"+c.Name+"/x.txt"))
	}
	return errors.Join(err, n.disk.link(n.w.link(c), log))
}

func (n *cluster) boxOf(c *Container) string {
	if c.Box >= 0 {
		return n.w.Boxes[c.Box].ID
	}
	return "no box"
}

func (n *cluster) labels(c *Container) (labels, annotations map[string]string) {
	if !c.Unlabelled {
		labels = map[string]string{
			"io.kubernetes.pod.uid": n.w.Pods[c.Pod].UID, "io.kubernetes.pod.name": n.w.Pods[c.Pod].Name,
			"io.kubernetes.pod.namespace": "default", "io.kubernetes.container.name": c.Name,
		}
	}
	annotations = map[string]string{}
	if c.Grace != "" {
		annotations["io.kubernetes.pod.terminationGracePeriod"] = c.Grace
	}
	if c.DeletionGrace != "" {
		annotations["io.kubernetes.pod.deletionGracePeriod"] = c.DeletionGrace
	}
	if c.PreStop {
		annotations["io.kubernetes.container.preStopHandler"] = `{"exec":{"command":["bye"]}}`
	}
	return labels, annotations
}

func (b *Box) state() runtimeapi.PodSandboxState {
	switch b.Ready {
	case "ready":
		return runtimeapi.PodSandboxState_SANDBOX_READY
	case "unknown":
		return 5
	default:
		return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
}

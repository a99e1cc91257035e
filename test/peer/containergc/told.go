package containergc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// snapshot returns the node's objects in the form that our package makes from statuses.
func (n *node) snapshot(context.Context) (s containergc.Snapshot, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.step.ListBoxes:
		return s, errors.New("fault:sandboxes")
	case n.step.ListContainers:
		return s, errors.New("fault:containers")
	}
	for _, b := range n.boxes {
		s.Sandboxes = append(s.Sandboxes, containergc.SandboxFromStatus(&runtimeapi.PodSandboxStatus{
			Id: b.ID, State: b.state(), CreatedAt: n.nanos(b.made),
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: b.UID, Name: n.w.Pods[b.Pod].Name, Namespace: "default", Attempt: b.Attempt},
		}))
	}
	for _, c := range n.containers {
		s.Containers = append(s.Containers, containergc.ContainerFromStatus(n.status(c), n.boxOf(c.Container)))
	}
	return s, nil
}

// told is what our manager reports about its last pass. The kubelet has no such report. The
// report must agree with the world and with the calls.
type told struct {
	node   *node
	open   int // open files before the pass
	result containergc.Result
	passes int
	plan   *containergc.Plan // made before the pass, if the world demands a plan
	failed bool              // the plan failed
	tries  []string          // removals, as the Observer receives them
}

func (t *told) observer() containergc.Observer {
	return containergc.Observer{
		Planned: func(p containergc.Plan) { t.result.Plan = p },
		Removed: func(o containergc.Object, _ time.Duration, err error) {
			t.node.mu.Lock()
			defer t.node.mu.Unlock()
			if err == nil {
				t.tries = append(t.tries, o.String())
			}
		},
		Collected: func(res containergc.Result, _ error) {
			t.result = res
			t.passes++
		},
	}
}

func (t *told) begin() {
	*t = told{node: t.node, open: descriptors()}
}

func (t *told) planned(p containergc.Plan, err error) {
	t.plan, t.failed = &p, err != nil
}

// problems returns the contradictions in the report.
func (t *told) problems(err error) string {
	var found []string
	check := func(what string, got, want any) {
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			found = append(found, fmt.Sprintf("%s %s, not %s", what, g, w))
		}
	}
	check("passes", t.passes, 1)
	check("open files", descriptors(), t.open)
	check("time of the plan", t.result.Plan.At.Equal(judge.WallClock{Offset: &t.node.offset}.Now()), true)
	check("not ready", t.result.Plan.NotReady, t.node.step.NotReady)
	var ids, names []string
	for _, o := range t.result.Removed {
		if names = append(names, o.String()); o.Kind == containergc.KindContainer || o.Kind == containergc.KindSandbox {
			ids = append(ids, o.ID)
		} else if _, err := os.Lstat(t.path(o)); err == nil {
			found = append(found, o.ID+" is there")
		}
	}
	slices.Sort(ids)
	slices.Sort(names)
	slices.Sort(t.tries)
	slices.Sort(t.node.removed)
	check("removed", ids, t.node.removed)
	check("seen", t.tries, names)
	for _, d := range t.result.Plan.Decisions {
		if !t.fits(d.Object) {
			found = append(found, fmt.Sprintf("decision about %+v", d.Object))
		}
	}
	if t.plan != nil {
		check("planned", text(t.plan), text(&t.result.Plan))
		if t.failed && err == nil {
			found = append(found, "the plan failed")
		}
	}
	return strings.Join(found, "; ")
}

func text(p *containergc.Plan) string {
	data, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (t *told) path(o containergc.Object) string {
	if o.Kind == containergc.KindLogLink {
		return filepath.Join(t.node.root, "containers", o.ID)
	}
	return filepath.Join(t.node.pods(), o.ID)
}

// fits reports whether the description of an object is correct.
func (t *told) fits(o containergc.Object) bool {
	w := t.node.w
	folder := o.Namespace + "_" + o.Pod + "_" + string(o.PodUID)
	switch o.Kind {
	case containergc.KindContainer:
		i := slices.IndexFunc(w.Containers, func(c *Container) bool { return c.ID == o.ID })
		return i >= 0 && t.fitsContainer(w.Containers[i], o)
	case containergc.KindSandbox:
		i := slices.IndexFunc(w.Boxes, func(b *Box) bool { return b.ID == o.ID })
		return i >= 0 && string(o.PodUID) == w.Boxes[i].UID && o.Namespace == "default" && o.Pod == w.Pods[w.Boxes[i].Pod].Name && o.Attempt == w.Boxes[i].Attempt
	case containergc.KindLogFolder:
		return o.ID == folder
	case containergc.KindLogs:
		return strings.HasPrefix(o.ID, fmt.Sprintf("%s/%s/%d.log", folder, o.Name, o.Attempt))
	case containergc.KindLogLink:
		named := strings.HasPrefix(o.ID, o.Pod+"_"+o.Namespace+"_"+o.Name+"-")
		return o.ID != "" && (named || o.ID == ".log" || strings.HasPrefix(o.ID, "odd") || strings.HasPrefix(o.ID, "lost"))
	default:
		return false
	}
}

func (t *told) fitsContainer(c *Container, o containergc.Object) bool {
	uid, namespace, name := t.node.w.Pods[c.Pod].UID, "default", t.node.w.Pods[c.Pod].Name
	if c.Unlabelled {
		namespace, name, uid = "", "", ""
		for _, b := range t.node.w.Boxes {
			if b.ID == t.node.boxOf(c) {
				uid = b.UID
			}
		}
		if o.PodUID == "" { // the sandbox was removed
			uid = ""
		}
	}
	return string(o.PodUID) == uid && o.Namespace == namespace && o.Pod == name && o.Name == c.Name && o.Attempt == c.Attempt
}

// descriptors counts the open files of this process.
func descriptors() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // this system has no /proc/self/fd
	}
	return len(open)
}

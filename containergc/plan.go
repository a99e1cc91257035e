package containergc

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/printable"
)

// Kind is the kind of an [Object].
type Kind string

// Kinds of objects, in the order in which the objects of one pod are removed.
const (
	// KindContainer is a container in the runtime.
	KindContainer Kind = "container"
	// KindSandbox is a sandbox in the runtime.
	KindSandbox Kind = "sandbox"
	// KindLogs are the log files of one container, including the rotated files.
	KindLogs Kind = "logs"
	// KindLogFolder is the folder with all logs of one pod.
	KindLogFolder Kind = "log folder"
	// KindLogLink is a link to a log that does not exist any more or that the plan removes.
	KindLogLink Kind = "log link"
)

// Object is a container, a sandbox or a log that can be removed.
type Object struct {
	Kind Kind `json:"kind"`
	// ID is the runtime's id, the path below [Config].PodLogs, or the name of the link.
	ID string `json:"id"`
	// PodUID, Namespace and Pod identify the pod. For a link, PodUID is known only if its
	// container or its log is known.
	PodUID    types.UID `json:"podUID,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	// Name is the container's name in the pod, empty for objects of a whole pod. Attempt
	// is the attempt of the container or sandbox.
	Name    string `json:"name,omitempty"`
	Attempt uint32 `json:"attempt,omitempty"`
	// Labels are the labels of a container or sandbox.
	Labels map[string]string `json:"-"`
}

// String returns the object as printed in a plan.
func (o Object) String() string {
	name := o.Namespace + "/" + o.Pod
	if o.Name != "" {
		name += "/" + o.Name
	}
	switch o.Kind {
	case KindContainer, KindSandbox:
		return fmt.Sprintf("%s %s#%d (%s)", o.Kind, name, o.Attempt, o.ID)
	case KindLogs:
		return fmt.Sprintf("%s %s#%d", o.Kind, name, o.Attempt)
	default:
		return fmt.Sprintf("%s %s", o.Kind, o.ID)
	}
}

// Reason is why an object is removed or kept.
type Reason string

// Reasons for which objects are removed.
const (
	PodDeleted       Reason = "the pod was deleted or evicted"
	PodTerminated    Reason = "the pod has terminated and all unused containers are removed"
	OverPerPod       Reason = "the container has more exited instances than are kept"
	OverTotal        Reason = "the node has more exited containers than are kept"
	NewerSandbox     Reason = "the pod has a newer sandbox"
	ContainerRemoved Reason = "its container was or would be removed"
	DeadLink         Reason = "the target does not exist"
	LogRemoved       Reason = "the log that it links to is removed"
)

// Reasons for which objects are kept.
const (
	NotOwned        Reason = "not owned by this agent"
	NoPod           Reason = "belongs to no pod"
	Running         Reason = "running"
	MayStart        Reason = "created, may be started soon"
	Young           Reason = "exited less than MinAge ago"
	WithinLimits    Reason = "within limits"
	NewestSandbox   Reason = "the pod's newest sandbox"
	HasContainers   Reason = "has containers"
	StillInRuntime  Reason = "the pod still has containers or sandboxes in the runtime"
	PodExists       Reason = "the pod still exists"
	ContainerExists Reason = "its container still exists"
	MayBeNew        Reason = "its container may be newer than the snapshot"
	MayRotate       Reason = "its container may write to the log again"
	BackingOff      Reason = "an earlier removal failed, backing off"
)

// Decision is the decision to remove or keep one object, with the reason.
type Decision struct {
	Object
	// Remove reports whether the object is removed.
	Remove bool `json:"remove"`
	// Reason is why the object is removed or kept.
	Reason Reason `json:"reason"`
	// Until is the time at which the reason to keep the object ends if nothing else changes.
	// Until is zero if that time is unknown.
	Until time.Time `json:"until,omitzero"`

	container *Container // from the snapshot: the object itself, or the container of a link if it is known
	files     []string   // log files
	unused    bool       // created and not started: removed only if its pod has terminated
}

// Plan lists the objects that are removed or kept, with the reasons. A Plan has no effect
// by itself. Containers come first, then sandboxes, logs and links. Containers and sandboxes
// have the order of the snapshot.
type Plan struct {
	// At is the time at which the plan was made.
	At time.Time `json:"at"`
	// NotReady reports that not every pod source has been read, so that running pods may
	// look deleted. The Plan then has no decisions.
	NotReady bool `json:"notReady,omitempty"`
	// Decisions has one entry for each object.
	Decisions []Decision `json:"decisions"`
}

// Removals returns the objects that are removed.
func (p Plan) Removals() []Object {
	var removed []Object
	for i := range p.Decisions {
		if d := &p.Decisions[i]; d.Remove {
			removed = append(removed, d.Object)
		}
	}
	return removed
}

// String prints the plan, one line for each object.
func (p Plan) String() string {
	if p.NotReady {
		return "nothing is removed: not every pod source has been read\n"
	}
	var b strings.Builder
	for i := range p.Decisions {
		d := &p.Decisions[i]
		verb := "keep  "
		if d.Remove {
			verb = "remove"
		}
		fmt.Fprintf(&b, "%s %s: %s", verb, printable.Line(d.String()), d.Reason)
		if !d.Until.IsZero() {
			fmt.Fprintf(&b, ", for %v", d.Until.Sub(p.At))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

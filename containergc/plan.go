package containergc

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/printable"
)

// Kind is what an [Object] is.
type Kind string

// The kinds of objects, in the order in which those of one pod are removed.
const (
	// KindContainer is a container in the runtime.
	KindContainer Kind = "container"
	// KindSandbox is a sandbox in the runtime.
	KindSandbox Kind = "sandbox"
	// KindLogs are the log files of one container, rotated ones included.
	KindLogs Kind = "logs"
	// KindLogFolder is the folder with all logs of one pod.
	KindLogFolder Kind = "log folder"
	// KindLogLink is a link to a log that is not there any more.
	KindLogLink Kind = "log link"
)

// Object is something that can be removed.
type Object struct {
	Kind Kind `json:"kind"`
	// ID is the runtime's id, or the path below [Config].PodLogs, or the name of the
	// link.
	ID string `json:"id"`
	// PodUID, Namespace and Pod name the pod. The UID of a link's is known if its
	// container or its log is.
	PodUID    types.UID `json:"podUID,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	// Name and Attempt say which container of the pod; Attempt that of a sandbox
	// as well.
	Name    string `json:"name,omitempty"`
	Attempt uint32 `json:"attempt,omitempty"`
	// Labels are those of a container or sandbox.
	Labels map[string]string `json:"-"`
}

// String names the object as in a plan.
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

// Reason is why an object goes or stays.
type Reason string

// Why objects go.
const (
	GonePod         Reason = "the pod is gone"
	EndedPod        Reason = "the pod has ended and all unused containers are to go"
	OverPerPod      Reason = "beyond MaxPerPodContainer"
	OverTotal       Reason = "beyond MaxContainers"
	NewerSandbox    Reason = "the pod has a newer sandbox"
	ContainerIsGone Reason = "the container is gone"
	DeadLink        Reason = "what it links to is gone"
	LogGoes         Reason = "the log that it links to goes"
)

// Why objects stay.
const (
	NotOurs         Reason = "not ours"
	NoPod           Reason = "belongs to no pod"
	Running         Reason = "running"
	MayStart        Reason = "created, may be about to start"
	Young           Reason = "ended less than MinAge ago"
	WithinLimits    Reason = "within limits"
	NewestSandbox   Reason = "the pod's newest sandbox"
	HasContainers   Reason = "has containers"
	StillInRuntime  Reason = "the pod is still in the runtime"
	PodIsHere       Reason = "the pod is not gone"
	ContainerIsHere Reason = "the container is not gone"
	MayBeNew        Reason = "the containers may be newer than the snapshot"
	MayRotate       Reason = "the container may write there again"
	BackingOff      Reason = "its removal failed before"
)

// Decision is what becomes of one object, and why.
type Decision struct {
	Object
	// Remove says that it goes.
	Remove bool `json:"remove"`
	// Reason is why it goes or stays.
	Reason Reason `json:"reason"`
	// Until is when a reason to stay will be over by itself, if that is known.
	Until time.Time `json:"until,omitzero"`

	container *Container // in the snapshot: the object, or that of the link if it is known
	files     []string   // of the logs
	unused    bool       // goes only as long as its pod has ended
}

// Plan says what goes, what stays, and why. It is a value: nothing happens by it.
// Containers come first, then sandboxes, logs and links, each in the order of the
// snapshot.
type Plan struct {
	// At is when it was made.
	At time.Time `json:"at"`
	// NotReady says that not every source of pods has been read, so that nothing
	// is known to be unused. There are no decisions then.
	NotReady bool `json:"notReady,omitempty"`
	// Decisions has one for each object.
	Decisions []Decision `json:"decisions"`
}

// Removals returns what goes.
func (p Plan) Removals() []Object {
	var gone []Object
	for i := range p.Decisions {
		if d := &p.Decisions[i]; d.Remove {
			gone = append(gone, d.Object)
		}
	}
	return gone
}

// String prints the plan, one line an object.
func (p Plan) String() string {
	if p.NotReady {
		return "nothing: not every source of pods has been read\n"
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

package oomwatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kind says whose memory had run out.
type Kind string

const (
	// System is a kill because the machine, or a NUMA node of it, had no memory left.
	System Kind = "system"
	// Cgroup is a kill because a cgroup had reached its limit.
	Cgroup Kind = "cgroup"
	// Group is a kill of all processes of a cgroup at once, because it has
	// memory.oom.group set; what ran out is told by [Kill.LimitCgroup].
	Group Kind = "group"
)

// Constraints as the kernel spells them.
const (
	ConstraintNone         = "CONSTRAINT_NONE"
	ConstraintCpuset       = "CONSTRAINT_CPUSET"
	ConstraintMemoryPolicy = "CONSTRAINT_MEMORY_POLICY"
	ConstraintMemcg        = "CONSTRAINT_MEMCG"
)

// Victim is a process that the kernel killed. What the kernel did not say is zero.
type Victim struct {
	// Process is the name of its main thread, at most 15 bytes of any kind.
	Process string
	// PID is its id, as the first pid namespace counts.
	PID int
	// UID is the user it ran as.
	UID int64
	// TotalVMBytes is its address space. AnonRSSBytes, FileRSSBytes and
	// ShmemRSSBytes are the parts of its resident set, PageTableBytes what
	// its page tables took beside that.
	TotalVMBytes, AnonRSSBytes, FileRSSBytes, ShmemRSSBytes, PageTableBytes int64
	// OOMScoreAdj is the bias that it was chosen with, -1000 to 1000.
	OOMScoreAdj int
}

// Kill is one decision of the kernel to kill. What nobody said is zero.
type Kill struct {
	// Kind says whose memory had run out. It is empty where only counters tell of
	// the kill, unless of a group.
	Kind Kind
	// Time is when the kernel logged it; that of the look at the counters, if
	// only those tell of it.
	Time time.Time
	// Constraint is what the kernel was short of, one of the Constraint constants.
	Constraint string
	// LimitCgroup is the cgroup whose limit was reached, from the root of the
	// hierarchy; "/" is the machine.
	LimitCgroup string
	// VictimCgroup is the cgroup of the victim, or the one that was killed whole.
	VictimCgroup string
	// PodUID and ContainerID are what VictimCgroup, or else LimitCgroup, belongs
	// to. A killed process need not have ended its container.
	PodUID      types.UID
	ContainerID string
	// Victim is the process that the kernel chose.
	Victim
	// Victims are all that a group kill killed, in that order, the chosen one
	// among them. Nil for other kinds.
	Victims []Victim
	// Kills is the number of processes killed. It is more than the victims known
	// by name where only counters tell of them.
	Kills int
	// Sequence is the record of the kernel's log at which what is known of it
	// begins; zero if only counters tell of it.
	Sequence uint64
	// Lost is what is missing between the kill before this one and this one.
	Lost Lost

	// from is the record after which the log must be read to tell of it again, with all
	// that had begun beside it. End is the last record that tells of it.
	from, end uint64
	// counted is by how much the kernel's counters rise: in a group kill the process
	// that was chosen may count twice. Zero is as much as Kills.
	counted int
}

// Lost counts what could not be told.
type Lost struct {
	// Records is the number of records that the kernel's log overwrote before
	// they were read.
	Records uint64
	// Kills is the number of kills that were dropped because the queue was full.
	Kills uint64
}

// String describes the kill in one line.
func (k *Kill) String() string {
	var b strings.Builder
	if k.Kind != "" {
		b.WriteString(string(k.Kind) + " ")
	}
	fmt.Fprintf(&b, "kill of %d", k.Kills)
	if k.Process != "" || k.PID != 0 {
		fmt.Fprintf(&b, ": %q (%d)", k.Process, k.PID)
	}
	for _, part := range []struct{ name, value string }{
		{"in", k.VictimCgroup},
		{"at the limit of", k.LimitCgroup},
		{"pod", string(k.PodUID)},
		{"container", k.ContainerID},
	} {
		if part.value != "" {
			b.WriteString(" " + part.name + " " + part.value)
		}
	}
	return b.String()
}

// add adds a victim to a group kill. The kernel kills, and logs, the one it chose once
// more; that one may have been told before it was known that there is a group.
func (k *Kill) add(v Victim, told int) {
	k.counted++
	if v.PID == told || slices.ContainsFunc(k.Victims, func(other Victim) bool { return other.PID == v.PID }) {
		return
	}
	k.Victims = append(k.Victims, v)
	k.Kills = len(k.Victims)
	if k.PID == 0 {
		k.Victim = v
	}
}

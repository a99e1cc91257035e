package oomwatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kind is the kind of memory that was exhausted.
type Kind string

const (
	// System is a kill because the machine, or one of its NUMA nodes, was out of memory.
	System Kind = "system"
	// Cgroup is a kill because a cgroup reached its limit.
	Cgroup Kind = "cgroup"
	// Group is a kill of all processes of a cgroup, because memory.oom.group is set for
	// it. [Kill.LimitCgroup] is the cgroup whose limit was reached.
	Group Kind = "group"
)

// Values of [Kill.Constraint], as the kernel spells them.
const (
	ConstraintNone         = "CONSTRAINT_NONE"
	ConstraintCpuset       = "CONSTRAINT_CPUSET"
	ConstraintMemoryPolicy = "CONSTRAINT_MEMORY_POLICY"
	ConstraintMemcg        = "CONSTRAINT_MEMCG"
)

// Victim is a process that the kernel killed. Values that the kernel did not log are
// zero.
type Victim struct {
	// Process is the name of its main thread, at most 15 bytes with any values.
	Process string
	// PID is its process ID in the initial PID namespace.
	PID int
	// UID is the ID of its user.
	UID int64
	// TotalVMBytes is the size of its address space. AnonRSSBytes, FileRSSBytes and
	// ShmemRSSBytes are the parts of its resident set. PageTableBytes is the size of its
	// page tables, which are not part of that.
	TotalVMBytes, AnonRSSBytes, FileRSSBytes, ShmemRSSBytes, PageTableBytes int64
	// OOMScoreAdj is the oom_score_adj with which it was chosen, -1000 to 1000.
	OOMScoreAdj int
}

// Kill is one OOM kill of the kernel. Unknown values are zero.
type Kill struct {
	// Kind is the kind of memory that was exhausted. It is empty if only counters report
	// the kill, except for a group kill.
	Kind Kind
	// Time is when the kernel logged it, or when the counters were read if only those
	// report it.
	Time time.Time
	// Constraint is the kernel's constraint, one of the Constraint constants.
	Constraint string
	// LimitCgroup is the cgroup whose limit was reached, as a path from the root of the
	// hierarchy; "/" is the machine.
	LimitCgroup string
	// VictimCgroup is the cgroup of the victim, or the cgroup that was killed as a whole.
	VictimCgroup string
	// PodUID and ContainerID identify the pod and container of VictimCgroup, or else of
	// LimitCgroup. The container may still run after the kill of one of its processes.
	PodUID      types.UID
	ContainerID string
	// Victim is the process that the kernel chose.
	Victim
	// Victims are all processes of a group kill, including the chosen one, in the order
	// of the log. Nil for other kinds.
	Victims []Victim
	// Kills is the number of processes killed. It may exceed the number of known victims
	// if only counters report the kill.
	Kills int
	// Sequence is the first record of the kernel's log about the kill, zero if only
	// counters report it.
	Sequence uint64
	// Lost is what was lost between the previous kill and this one.
	Lost Lost

	// from is the record after which the log must be read to report the kill again,
	// together with all kills that had begun at the same time. end is the last record
	// about it.
	from, end uint64
	// counted is by how much the kernel's counters rise: in a group kill, the chosen
	// process may count twice. Zero means as much as Kills.
	counted int
}

// Lost counts what could not be reported.
type Lost struct {
	// Records is the number of records of the kernel's log that were overwritten before
	// they were read.
	Records uint64
	// Kills is the number of kills that were dropped because the queue was full.
	Kills uint64
}

// String returns the kill in one line.
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

// add adds a victim to a group kill. The kernel kills and logs the chosen process twice.
// That process may have been reported before the kill was known to be a group kill: then
// reportedPID is its PID.
func (k *Kill) add(v Victim, reportedPID int) {
	k.counted++
	if v.PID == reportedPID || slices.ContainsFunc(k.Victims, func(other Victim) bool { return other.PID == v.PID }) {
		return
	}
	k.Victims = append(k.Victims, v)
	k.Kills = len(k.Victims)
	if k.PID == 0 {
		k.Victim = v
	}
}

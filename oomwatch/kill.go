package oomwatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kind is the kind of a kill.
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
	// Process is the name of the process's main thread: at most 15 bytes, which may have
	// any values.
	Process string
	// PID is the process ID in the initial PID namespace.
	PID int
	// UID is the ID of the user of the process.
	UID int64
	// TotalVMBytes is the size of the address space. AnonRSSBytes, FileRSSBytes and
	// ShmemRSSBytes are the parts of the resident set. PageTableBytes is the size of the
	// page tables, which are not in the resident set.
	TotalVMBytes, AnonRSSBytes, FileRSSBytes, ShmemRSSBytes, PageTableBytes int64
	// OOMScoreAdj is the oom_score_adj of the process when the kernel chose it, -1000 to
	// 1000.
	OOMScoreAdj int
}

// Kill is one OOM kill of the kernel. Unknown values are zero.
type Kill struct {
	// Kind is the kind of the kill. It is empty if only counters report the kill, unless
	// the counters show a group kill.
	Kind Kind
	// Time is when the kernel logged the kill, or when the counters were read if only
	// counters report the kill.
	Time time.Time
	// Constraint is the kernel's constraint, one of the Constraint constants.
	Constraint string
	// LimitCgroup is the cgroup whose limit was reached, as a path from the root of the
	// hierarchy; "/" is the machine.
	LimitCgroup string
	// VictimCgroup is the cgroup of the victim, or the cgroup that was killed as a whole.
	VictimCgroup string
	// PodUID and ContainerID identify the pod and the container to which VictimCgroup
	// belongs. If VictimCgroup belongs to no pod and no container, they are found from
	// LimitCgroup. The container may still run after the kill of one of its processes.
	PodUID      types.UID
	ContainerID string
	// Victim is the process that the kernel chose.
	Victim
	// Victims are the killed processes of a group kill, in the order of the log. The chosen
	// process is missing if it was already reported as a kill of its own. Victims is nil for
	// other kinds.
	Victims []Victim
	// Kills is the number of processes killed. It may exceed the number of known victims
	// if only counters report the kill.
	Kills int
	// Sequence is the sequence number of the first log record about the kill. It is zero
	// if only counters report the kill.
	Sequence uint64
	// Lost counts what was lost between the previous kill and this kill.
	Lost Lost

	// To find this kill, and the kills that were incomplete when this kill started, the log
	// must be read again after the record with the sequence number from. The record with the
	// number end is the last record about the kill.
	from, end uint64
	// counted is the number by which the kill raises the kernel's counters: in a group
	// kill, the chosen process may count twice. Zero means that it equals Kills.
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

// add adds a victim to a group kill. The kernel logs the chosen process twice: alone, and
// as a member of the group. The method adds the process only once. If the process was already
// reported as a kill of its own, before the log announced the group kill, reportedPID is
// its PID.
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

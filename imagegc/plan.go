package imagegc

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeparts/kubeparts/internal/printable"
)

// Plan is what a collection would do, and why. It can be marshaled to JSON.
type Plan struct {
	// At is when the plan was made.
	At time.Time `json:"at"`
	// Usage is the usage of the filesystem. Zero means that the filesystem was not
	// measured, so that the plan deletes no images for space.
	Usage Usage `json:"usage"`
	// UsedPercent is the usage in percent, rounded up. If UsedPercent is HighThresholdPercent or
	// more, a collection frees space until the usage is LowThresholdPercent.
	UsedPercent          int `json:"usedPercent"`
	HighThresholdPercent int `json:"highThresholdPercent"`
	LowThresholdPercent  int `json:"lowThresholdPercent"`
	// WantBytes is how much must be freed, 0 below the high threshold.
	WantBytes uint64 `json:"wantBytes"`
	// DeleteBytes is the total size of the images that would be deleted. A collection
	// measures the filesystem after each deletion, and may delete fewer or more images.
	DeleteBytes uint64 `json:"deleteBytes"`
	// Decisions are the decisions of [PlanDeletions].
	Decisions []Decision `json:"decisions"`
}

func newPlan(now time.Time, images []Image, policy Policy, u Usage) Plan {
	l := policy.limits()
	p := Plan{
		At: now, Usage: u, HighThresholdPercent: l.high, LowThresholdPercent: l.low, WantBytes: l.bytesToFree(u),
	}
	if u != (Usage{}) {
		p.UsedPercent = u.Percent()
	}
	p.Decisions = PlanDeletions(now, images, policy, Goal{Aged: true, Bytes: p.WantBytes})
	for _, v := range deletions(p.Decisions) {
		p.DeleteBytes = saturatingAdd(p.DeleteBytes, v.Image.SizeBytes)
	}
	return p
}

// String explains the plan: what is needed, and a table of the images in the order of
// Decisions.
func (p Plan) String() string {
	var b strings.Builder
	switch size := formatSize(p.Usage.CapacityBytes); {
	case p.Usage == (Usage{}):
		fmt.Fprintln(&b, "image filesystem: not measured, no space is freed")
	case p.UsedPercent < p.HighThresholdPercent:
		fmt.Fprintf(&b, "image filesystem: %d%% of %s used, %s available\n", p.UsedPercent, size, formatSize(p.Usage.AvailableBytes))
		fmt.Fprintf(&b, "below the high threshold of %d%%: no space is needed\n", p.HighThresholdPercent)
	default:
		fmt.Fprintf(&b, "image filesystem: %d%% of %s used, %s available\n", p.UsedPercent, size, formatSize(p.Usage.AvailableBytes))
		fmt.Fprintf(&b, "at or above the high threshold of %d%%: %s must be freed to reach %d%%\n",
			p.HighThresholdPercent, formatSize(p.WantBytes), p.LowThresholdPercent)
	}
	deleted := deletions(p.Decisions)
	fmt.Fprintf(&b, "%d of %d images would be deleted, %s by their sizes\n", len(deleted), len(p.Decisions), formatSize(p.DeleteBytes))
	if len(p.Decisions) == 0 {
		return b.String()
	}
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "ACTION\tIMAGE\tSIZE\tUNUSED\tWHY")
	for _, v := range p.Decisions {
		action := "keep"
		if v.Delete {
			action = "delete"
		}
		unused := "-"
		if v.Image.Containers == 0 {
			unused = duration.HumanDuration(p.At.Sub(v.Image.unusedSince()))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", action, printable.Line(v.Image.Name()), formatSize(v.Image.SizeBytes), unused, printable.Line(v.explain(p.At)))
	}
	_ = table.Flush() // a strings.Builder never fails
	return b.String()
}

// explain returns the reason with details.
func (v Decision) explain(now time.Time) string {
	var why string
	switch v.Reason {
	case ReasonInUse:
		why = fmt.Sprintf("in use by %d containers", v.Image.Containers)
		if v.Image.Containers == 1 {
			why = "in use by a container"
		}
	case ReasonLeased:
		why = "leased by " + strings.Join(v.Image.LeasedBy, ", ")
	case ReasonBackoff:
		why = fmt.Sprintf("deletion failed (%d in a row)", v.Image.Failures)
	case ReasonAge:
		why = "unused for too long"
	case ReasonSpace:
		why = "space is needed"
	default:
		why = string(v.Reason)
	}
	if !v.Until.IsZero() {
		why += ", for another " + duration.HumanDuration(v.Until.Sub(now))
	}
	if v.Image.Preference == Prefer {
		why += " (preferred)"
	}
	return why
}

package imagegc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/kubeparts/kubeparts/imagegc"
)

// problems returns the contradictions between the result of our manager's last pass and the
// calls of that pass. The kubelet does not report a result.
func (a *ours) problems(act string, err error) string {
	var found []string
	for id, n := range a.node.answers {
		if n > 1 {
			found = append(found, id+" asked again")
		}
	}
	slices.Sort(found)
	if act == "detect" {
		return strings.Join(found, "; ")
	}
	check := func(what string, got, want any) {
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			found = append(found, fmt.Sprintf("%s %s, not %s", what, g, w))
		}
	}
	var removed, failed []string
	for _, try := range a.node.tries {
		if try.err == nil || crierrors.IsNotFound(try.err) {
			removed = append(removed, try.name)
		} else {
			failed = append(failed, try.name)
		}
	}
	slices.Sort(removed)
	slices.Sort(failed)
	check("removed", a.names(a.result.Removed), removed)
	check("failed", a.names(a.result.Failed), failed)
	var before, after imagegc.Usage
	if len(a.usages) > 0 {
		before, after = a.usages[0], a.usages[len(a.usages)-1]
	}
	if act == "delete unused" && a.node.faults.Odd != "" {
		return strings.Join(found, "; ") // an event can replace the first measurement
	}
	check("before", a.result.Before, before)
	check("after", a.result.After, after)
	check("freed", a.result.FreedBytes, after.AvailableBytes-min(after.AvailableBytes, before.AvailableBytes))
	if full := (*imagegc.SpaceError)(nil); errors.As(err, &full) {
		check("wanted", a.result.WantBytes, full.WantBytes)
	}
	check("at", a.result.At.Add(-a.node.offset).Sub(a.node.began), "0s")
	return strings.Join(found, "; ")
}

// names returns the names of images, in order.
func (a *ours) names(removals []imagegc.Removal) (names []string) {
	for _, r := range removals {
		names = append(names, a.node.w.name(r.Image.ID, r.Image.RuntimeHandler))
	}
	slices.Sort(names)
	return names
}

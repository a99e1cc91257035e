package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// removals sets the removals of our plans. In the kubelet, another manager does these.
func removals() deviation {
	return deviation{
		Rule: rule("removal of dead containers", judge.Deliberate, "The kubelet removes init containers that have ended, and leaves other dead containers and sandboxes to its garbage collection. A plan of this package removes all dead instances of a container except the two newest. It also removes replaced sandboxes without containers."),
		facts: func(s *State, f judge.Facts) {
			if f["restart all"] != "" {
				return
			}
			forget(f, "remove ")
			if s.restartAllWaits {
				return
			}
			used := map[string]bool{}
			all := slices.Concat(s.Containers, s.hidden)
			slices.SortFunc(all, func(a, b *Container) int {
				return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.Created.Compare(a.Created))
			})
			seen := map[string]int{}
			for _, c := range all {
				keep := 2
				if start := f["start "+c.Name]; start != "" && !strings.Contains(start, "made before") {
					keep = 1
				}
				if !s.inSpec(c.Name) {
					keep = 0
				}
				if c == s.here(c.Name) && s.replacesUnstarted(c, f) {
					f["remove "+c.ID] = "yes"
					continue
				}
				if seen[c.Name]++; seen[c.Name] > keep && !live(c) {
					f["remove "+c.ID] = "yes"
				} else {
					used[c.Box] = true
				}
			}
			for i, b := range s.boxes() {
				if i > 0 && !b.Ready && !used[b.ID] {
					f["remove "+b.ID] = "yes"
				}
			}
		},
	}
}

// replacesUnstarted reports whether our plan removes c, which never ran, because it creates a
// replacement.
func (s *State) replacesUnstarted(c *Container, f judge.Facts) bool {
	return s.usable() && c.State == created && (c.brokenOff || s.changed(c)) && f["start "+c.Name] != ""
}

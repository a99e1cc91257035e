package pleg

import (
	"maps"
	"slices"
)

// roamed is how many pods a degraded generator visits instead of each global relist.
const roamed = 16

// roam relists the next few of the pods that are known, for when the list of all is
// too large. It never learns of pods that nobody names, and does not tell the cache
// that anything else is fresh. The first failure ends it.
func (g *Generator) roam(p *pass) {
	uids := slices.Sorted(maps.Keys(g.records))
	at, found := slices.BinarySearch(uids, g.visited)
	if found {
		at++
	}
	for i := range min(roamed, len(uids)) {
		uid := uids[(at+i)%len(uids)]
		if err := g.relistPod(p, uid); err != nil {
			return // relist said already that something is wrong
		}
		g.visited = uid
	}
}

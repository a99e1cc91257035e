package containergc

import (
	"cmp"
	"slices"
)

// removeOfEndedPods removes what goes whatever the limits, and forgets it.
func (d *decider) removeOfEndedPods() {
	for i := range d.units {
		u := &d.units[i]
		switch p := &d.pods[u.pod]; {
		case p.gone:
			d.trim(u, 0, GonePod)
		case d.AllUnused && p.ended:
			d.trim(u, 0, EndedPod)
		}
	}
}

func (d *decider) remove(i int, why Reason) { d.decisions[i].Remove, d.decisions[i].Reason = true, why }

// trim removes all but the newest keep of a unit.
func (d *decider) trim(u *unit, keep int, why Reason) {
	if keep < 0 || len(u.dead) <= keep {
		return
	}
	for _, i := range u.dead[keep:] {
		d.remove(i, why)
	}
	u.dead = u.dead[:keep]
}

// enforcePerPod leaves each unit the newest keep.
func (d *decider) enforcePerPod(keep int, why Reason) {
	for i := range d.units {
		d.trim(&d.units[i], keep, why)
	}
}

// enforceTotal applies MaxContainers.
func (d *decider) enforceTotal() {
	most := limit(d.Policy.MaxContainers, -1)
	if most < 0 {
		return
	}
	total, units, all := 0, 0, make([]int, len(d.units))
	for i := range d.units {
		all[i] = i
		if n := len(d.units[i].dead); n > 0 {
			total, units = total+n, units+1
		}
	}
	if total <= most {
		return
	}
	d.enforcePerPod(max(1, most/units), OverTotal)
	d.removeOldest(all, most, OverTotal)
}

// removeOldest leaves some units, taken together, those keep that ended last.
func (d *decider) removeOldest(units []int, keep int, why Reason) {
	var flat []int
	for _, u := range units {
		flat = append(flat, d.units[u].dead...)
	}
	if len(flat) <= keep {
		return
	}
	d.sortByEnd(flat)
	for _, i := range flat[keep:] {
		d.remove(i, why)
	}
	for _, u := range units {
		d.units[u].dead = slices.DeleteFunc(d.units[u].dead, d.removed)
	}
}

func (d *decider) removed(i int) bool { return d.decisions[i].Remove }

// sortByEnd puts those that ended last first.
func (d *decider) sortByEnd(all []int) {
	slices.SortFunc(all, func(a, b int) int {
		if n := cmp.Compare(d.ends[b], d.ends[a]); n != 0 {
			return n
		}
		return newestFirst(&d.Snapshot.Containers[a], &d.Snapshot.Containers[b])
	})
}

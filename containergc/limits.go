package containergc

import (
	"cmp"
	"slices"
)

// removeOfEndedPods removes what goes whatever the limits, and forgets it.
func (d *decider) removeOfEndedPods() {
	budget := limit(d.Policy.MaxPerCompletedPod, -1)
	var over []int // pods that have ended and not gone, if they have a budget
	for i := range d.units {
		u := &d.units[i]
		p := &d.pods[u.pod]
		switch {
		case p.gone:
			d.trim(u, 0, GonePod)
		case d.AllUnused && p.ended:
			d.trim(u, 0, EndedPod)
		default:
			d.removeOld(u)
			if p.ended && budget >= 0 {
				over = append(over, i)
			}
		}
	}
	slices.SortStableFunc(over, func(a, b int) int { return cmp.Compare(d.units[a].pod, d.units[b].pod) })
	for len(over) > 0 {
		n := 1
		for n < len(over) && d.units[over[n]].pod == d.units[over[0]].pod {
			n++
		}
		d.removeOldest(over[:n], budget, OverCompleted)
		over = over[n:]
	}
}

// removeOld applies the TTL.
func (d *decider) removeOld(u *unit) {
	if d.Policy.TTL <= 0 {
		return
	}
	expired := d.Now.Add(-d.Policy.TTL).UnixNano()
	u.dead = slices.DeleteFunc(u.dead, func(i int) bool {
		if d.last(u, i) || d.ends[i] > expired {
			return false
		}
		d.remove(i, OverAge)
		return true
	})
}

// last says whether i is the newest of its name in a pod that has not ended: what
// became of that container is known from it alone.
func (d *decider) last(u *unit, i int) bool {
	return !d.pods[u.pod].ended && i == u.newest
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

// enforceBytes applies MaxBytes.
func (d *decider) enforceBytes() {
	if d.Policy.MaxBytes <= 0 {
		return
	}
	var total int64
	var flat []int
	for n := range d.units {
		u := &d.units[n]
		for _, i := range u.dead {
			total += d.Snapshot.Containers[i].Bytes
			if !d.last(u, i) {
				flat = append(flat, i)
			}
		}
	}
	d.sortByEnd(flat)
	for _, i := range slices.Backward(flat) {
		if total <= d.Policy.MaxBytes {
			return
		}
		d.remove(i, OverBytes)
		total -= d.Snapshot.Containers[i].Bytes
	}
}

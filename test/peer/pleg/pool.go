package pleg

import (
	"slices"
	"time"
)

// A pool computes when our inspections end. Each place runs one inspection at a time. Pods
// whose inspection failed before get half of the places, and come after the others.
type pool struct {
	all           []expectation
	places        int
	first, again  []int // numbers of waiting inspections
	running, ends []int
}

// queue records when each inspection ends, and when a failed one is retried.
func queue(all []expectation, places int, pods map[string]*podModel) {
	p := &pool{all: all, places: places, ends: make([]int, len(all))}
	for i := range all {
		switch {
		case !all[i].inspected:
			continue
		case all[i].again:
			p.again = append(p.again, i)
		default:
			p.first = append(p.first, i)
		}
		p.start(0)
	}
	for now := 1; len(p.first)+len(p.again) > 0; now++ {
		p.start(now)
	}
	for i, uid := range uids() {
		if pod := pods[uid]; all[i].inspected && pod.failures > 0 {
			pod.retryAt += time.Duration(p.ends[i]) * time.Second
		}
	}
}

// start assigns free places to waiting inspections.
func (p *pool) start(now int) {
	p.running = slices.DeleteFunc(p.running, func(i int) bool { return p.ends[i] <= now })
	for len(p.running) < p.places {
		repeated := 0
		for _, i := range p.running {
			if p.all[i].again {
				repeated++
			}
		}
		next := &p.first
		if len(p.first) == 0 {
			next = &p.again
			if len(p.again) == 0 || repeated >= max(1, p.places/2) {
				return
			}
		}
		i := (*next)[0]
		*next = (*next)[1:]
		p.ends[i] = now + p.all[i].took
		p.all[i].queued, p.all[i].slow = now > 0, p.ends[i] > 0
		if p.ends[i] > now {
			p.running = append(p.running, i)
		}
	}
}

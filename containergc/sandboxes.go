package containergc

// judgeSandboxes decides on the sandboxes.
func (d *decider) judgeSandboxes() {
	used := make([]bool, len(d.boxPods))
	if d.boxOf != nil {
		for i := range d.members {
			if n, ok := d.boxOf[d.Snapshot.Containers[i].SandboxID]; ok && !d.decisions[i].Remove {
				used[n] = true
			}
		}
	}
	for i := range d.Snapshot.Sandboxes {
		b := &d.Snapshot.Sandboxes[i]
		v := Decision{index: i, Object: Object{
			Kind: KindSandbox, ID: b.ID, PodUID: b.PodUID, Namespace: b.Namespace, Pod: b.Pod,
			Attempt: b.Attempt, Labels: b.Labels,
		}}
		p := &d.pods[d.boxPods[i]]
		v.Remove, v.Reason = d.sandboxGoes(&v, p, used[i])
		if d.holdBack(&v); !v.Remove {
			p.inUse = true
		}
		d.decisions = append(d.decisions, v)
	}
}

func (d *decider) sandboxGoes(v *Decision, p *pod, used bool) (bool, Reason) {
	b := &d.Snapshot.Sandboxes[v.index]
	switch {
	case p.uid == "":
		return false, NoPod
	case !d.owned(v.Object):
		p.foreign = true
		return false, NotOurs
	case b.Ready:
		return false, Running
	case used:
		return false, HasContainers
	case p.gone:
		return true, GonePod
	case d.AllUnused && p.ended:
		return true, EndedPod
	case p.newestBox != v.index:
		return true, NewerSandbox
	default:
		return false, NewestSandbox
	}
}

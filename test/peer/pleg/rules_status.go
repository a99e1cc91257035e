package pleg

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const keptSentence = "The kubelet inspects all sandboxes and containers of a pod that changed; here only sandboxes and containers whose listed state changed are inspected, unless a reinspection is requested."

const vanishedSentence = "If the newest sandbox is removed while its pod is inspected, the kubelet's status has no address and no active container until the next relist; here the status has the address and the active containers of the next newest sandbox."

const sameTimeSentence = "The kubelet leaves sandboxes or containers created at the same time in the order of the runtime's list, which may differ each time; here they are sorted by ID."

const deadlineSentence = "The kubelet waits for an inspection without a limit, and all pods wait with it; here an inspection fails after InspectTimeout and is retried."

func failureRules() []rule {
	return []rule{
		{
			Name: "pod IPs after a failed inspection", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: "The kubelet drops the addresses of a pod when an inspection fails; here they stay.",
			Explains: atOnce(func(f finding) bool {
				return f.fact == "addresses" && f.isStatus() && !f.failed && !f.kubeletFailed && f.Kubelet == "" && f.Ours == f.before[f.Fact] && f.forgotten()
			}),
		},
		{
			Name: "stale status after a failed inspection", Class: judge.Deliberate, Doc: "podcache/doc.go",
			Sentence: "After a failed inspection the kubelet has only the error; here the writer also stores the last known status, marked as stale.",
			Explains: about(func(f finding) bool {
				return f.isStatus() && f.failed && f.kubeletFailed && f.Kubelet == ""
			}),
		},
		{
			Name: "inspection timeout", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: deadlineSentence,
			Explains: about(func(f finding) bool { return f.isStatus() && f.failed && f.late && !f.kubeletFailed }),
		},
		{
			Name: "back-off of a failed inspection", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: "After a failed inspection the kubelet inspects the pod again in each relist; here the inspection is retried after 1 s, 2 s, and so on up to 1 min.",
			Explains: about(func(f finding) bool {
				return f.isStatus() && f.failed && !f.late && (!f.kubeletFailed || f.fact == "error" && f.waits)
			}),
		},
		{
			Name: "unchanged containers not inspected: failures", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: keptSentence,
			Explains: about(func(f finding) bool { return f.isStatus() && !f.failed && f.kubeletFailed }),
		},
		{
			Name: "removal found by single-pod relist: status", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: goneSentence,
			Explains: about(func(f finding) bool { return f.isStatus() && f.gone && f.Ours == "" }),
		},
		{
			Name: "retry of a failed inspection: status", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: deadlineSentence,
			Explains: about(func(f finding) bool {
				return f.isStatus() && f.parted == "failed" && f.inspected && !f.kubeletInspected && f.keptAny()
			}),
		},
		{
			Name: "status contradicting the list: status", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: settledSentence,
			Explains: about(func(f finding) bool { return f.isStatus() && f.settles && !f.kubeletInspected }),
		},
		{
			Name: "container change between created and unknown", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: "The kubelet's generator does not distinguish a created container from one in an unknown state; here a change from one to the other causes an inspection of the pod.",
			Explains: about(func(f finding) bool { return f.isStatus() && f.changes && !f.kubeletInspected }),
		},
		{
			Name: "unchanged containers not inspected: status", Class: judge.Deliberate, Doc: "pleg/doc.go", Sentence: keptSentence,
			Explains: about(func(f finding) bool {
				if !f.isStatus() {
					return false
				}
				if words := strings.FieldsFunc(f.fact, isSeparator); words[0] == "container" || words[0] == "sandbox" {
					return f.kept(words[1])
				}
				return f.keptAny()
			}),
		},
	}
}

// forgotten reports whether the kubelet's last inspection with a value for this fact failed
// and no sandbox of the pod has been ready since.
func (f finding) forgotten() bool {
	for step := f.Step - 1; step >= 0 && f.KubeletFacts[step][f.Fact] == ""; step-- {
		if f.KubeletFacts[step]["pod "+f.pod+"/error"] != "" {
			return !f.anyKnown(func(o Object) bool { return o.isSandbox() && o.State == ready })
		}
	}
	return false
}

func isSeparator(r rune) bool { return r == ' ' || r == '/' }

func addressRules() []rule {
	addresses := func(explains func(f finding, newest Object) bool) func(scene) bool {
		return about(func(f finding) bool {
			if f.fact != "addresses" || !f.isStatus() {
				return false
			}
			boxes := sorted(f.known, true)
			return len(boxes) > 0 && explains(f, boxes[0])
		})
	}
	return []rule{
		{
			Name: "newest sandbox vanished: pod IPs", Class: judge.KubeletDefect, Doc: "pleg/doc.go",
			Sentence: vanishedSentence,
			Explains: addresses(func(f finding, newest Object) bool {
				return f.newestVanished() && f.Kubelet == "" && f.Ours == strings.Join(newest.addresses(), " ")
			}),
		},
		{
			Name: "pod IPs after sandbox network teardown", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: "When the network of a ready sandbox is removed before the sandbox, the kubelet drops the pod's addresses; here they stay.",
			Explains: addresses(func(f finding, newest Object) bool {
				return newest.State == ready && newest.ID == f.ipSource && f.Kubelet == "" && len(newest.addresses()) == 0 && f.Ours == f.before[f.Fact]
			}),
		},
	}
}

// newestVanished reports whether the newest sandbox of the list was gone when it
// was inspected.
func (f finding) newestVanished() bool {
	return slices.ContainsFunc(f.newestListed(), func(o Object) bool {
		_, found := f.known[o.ID]
		return !found
	})
}

// newestListed returns the newest listed sandbox. If several have the same creation time, it
// returns all of them, because the kubelet picks one at random.
func (f finding) newestListed() (all []Object) {
	listed := map[string]Object{}
	for _, o := range f.listed {
		listed[o.ID] = o
	}
	for _, o := range sorted(listed, true) {
		if len(all) == 0 || o.Attempt == all[0].Attempt && o.Created == all[0].Created {
			all = append(all, o)
		}
	}
	return all
}

func statusRules() []rule {
	return []rule{
		{
			Name: "pod name missing in sandbox metadata", Class: judge.KubeletDefect, Doc: "pleg/doc.go",
			Sentence: "If the newest sandbox of a pod has no pod name, the kubelet's status of the pod has no name; here the status has the name from another sandbox or a container.",
			Explains: about(func(f finding) bool {
				isNameless := slices.ContainsFunc(f.newestListed(), func(o Object) bool { return o.NoName })
				return f.fact == "name" && f.isStatus() && f.Kubelet == "ns" && isNameless
			}),
		},
		{
			Name: "containers sorted by restart count", Class: judge.Deliberate, Doc: "podcache/doc.go",
			Sentence: "The kubelet sorts the containers of a pod by creation time; here the restart count comes first, because clocks may go backwards (kubernetes#134153).",
			Explains: about(func(f finding) bool {
				return f.sortsContainers() && f.anyPair(false, func(a, b Object) bool { return a.restarts() > b.restarts() && a.Created <= b.Created })
			}),
		},
		{
			Name: "containers with equal creation times", Class: judge.KubeletDefect, Doc: "podcache/doc.go", Sentence: sameTimeSentence,
			Explains: about(func(f finding) bool {
				return f.sortsContainers() && f.anyPair(false, func(a, b Object) bool { return a.restarts() == b.restarts() && a.Created == b.Created })
			}),
		},
		{
			Name: "newest sandbox vanished: active containers", Class: judge.KubeletDefect, Doc: "pleg/doc.go",
			Sentence: vanishedSentence,
			Explains: about(func(f finding) bool {
				return strings.HasPrefix(f.fact, "active ") && f.isStatus() && f.newestVanished() && f.Kubelet == ""
			}),
		},
		{
			Name: "sandboxes with equal creation times", Class: judge.KubeletDefect, Doc: "podcache/doc.go", Sentence: sameTimeSentence,
			Explains: about(func(f finding) bool {
				return f.isStatus() && f.anyPair(true, func(a, b Object) bool { return a.Attempt == b.Attempt && a.Created == b.Created })
			}),
		},
	}
}

func (f finding) anyKnown(is func(Object) bool) bool {
	for _, o := range f.known {
		if is(o) {
			return true
		}
	}
	return false
}

// anyPair reports whether two sandboxes, or two containers of the same label, are
// in a relation.
func (f finding) anyPair(sandboxes bool, are func(a, b Object) bool) bool {
	for _, a := range f.known {
		for _, b := range f.known {
			if a.ID != b.ID && a.isSandbox() == sandboxes && b.isSandbox() == sandboxes && a.label() == b.label() && are(a, b) {
				return true
			}
		}
	}
	return false
}

// sortsContainers reports whether the sides have the same containers of a name in
// another order.
func (f finding) sortsContainers() bool {
	kind, name, _ := strings.Cut(f.fact, " ")
	fact := "pod " + f.pod + "/containers " + name
	kubelet, ours := strings.Fields(f.KubeletFacts[f.Step][fact]), strings.Fields(f.OursFacts[f.Step][fact])
	same := !slices.Equal(kubelet, ours)
	slices.Sort(kubelet)
	slices.Sort(ours)
	return (kind == "containers" || kind == "active") && f.isStatus() && same && slices.Equal(kubelet, ours)
}

func generatorRules() []rule {
	return []rule{
		{
			Name: "cause of an unhealthy PLEG", Class: judge.Deliberate, Doc: "pleg/doc.go",
			Sentence: "The kubelet's error of an unhealthy generator has no cause; here the error wraps the error of the last failed list.",
			Explains: func(s scene) bool {
				cause := s.World.model.steps[s.Step].cause
				return s.Fact == "unhealthy" && cause != "" && s.Ours == s.Kubelet+": "+cause
			},
		},
		{
			Name: "container counts never reset to 0", Class: judge.KubeletDefect, Doc: "pleg/doc.go",
			Sentence: "The kubelet's count of the containers in a state keeps its last value when no container is in that state any more; here it becomes 0.",
			Explains: func(s scene) bool {
				sm := s.World.model.steps[s.Step]
				return strings.HasSuffix(s.Fact, " containers") && s.Ours == strconv.Itoa(sm.counts[s.Fact]) && s.Kubelet == strconv.Itoa(sm.gauges[s.Fact])
			},
		},
	}
}

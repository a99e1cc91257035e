package podsource

import (
	"slices"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// ancestors returns the paths above a path.
func ancestors(path string) (all []string) {
	for {
		parent, _, ok := cutLast(path)
		if !ok {
			return all
		}
		all, path = append(all, parent), parent
	}
}

// derived explains facts about a pod whose document the kubelet refuses and ours
// accepts: the kubelet has none, or keeps those of the answer before.
func derived(s scene) bool {
	pod, _, ok := podFact(s.Fact)
	if !ok {
		return false
	}
	last := lastRead(s)
	if s.World.HTTP {
		return refuses(s.KubeletFacts, last.Step, "answer") && isModel(s)
	}
	h, has := modelOf(s).pods[s.Step][pod]
	return has && !hasPod(s.KubeletFacts, s.Step, pod) && refuses(s.KubeletFacts, last.Step, h.file.Name) && isModel(s)
}

// hasPort reports whether one of the pod's containers of a kind has a host port of
// container c.
func hasPort(doc, c any, kind string, counts func(any) bool) bool {
	others, _ := get(doc, "spec", kind).(*list)
	if others == nil {
		return false
	}
	for _, other := range others.items {
		if other == c || !counts(other) {
			continue
		}
		hostNetwork := get(doc, "spec", "hostNetwork") == true
		for _, a := range portsOf(other, hostNetwork) {
			if slices.Contains(portsOf(c, hostNetwork), a) {
				return true
			}
		}
	}
	return false
}

// portsOf returns the host ports of a container.
func portsOf(c any, hostNetwork bool) (all []string) {
	ports, _ := get(c, "ports").(*list)
	if ports == nil {
		return nil
	}
	for _, p := range ports.items {
		n, _ := get(p, "hostPort").(number)
		if hostNetwork && (n == "" || n == "0") {
			n, _ = get(p, "containerPort").(number)
		}
		if n != "" && n != "0" {
			protocol := text(p, "protocol")
			if protocol == "" {
				protocol = "TCP"
			}
			all = append(all, string(n)+" "+protocol+" "+text(p, "hostIP"))
		}
	}
	return all
}

// containerOf returns the container that a path is about.
func containerOf(doc any, path string) any {
	for _, kind := range []string{"initContainers", "containers"} {
		rest, ok := strings.CutPrefix(path, "spec."+kind+"[")
		if !ok {
			continue
		}
		digits, _, _ := strings.Cut(rest, "]")
		i, err := strconv.Atoi(digits)
		if all, ok := get(doc, "spec", kind).(*list); ok && err == nil && i < len(all.items) {
			return all.items[i]
		}
	}
	return nil
}

// hasProblem reports whether there is a fact with a prefix.
func hasProblem(facts judge.Facts, prefix string) bool {
	for fact, value := range facts {
		if value != "" && strings.HasPrefix(fact, prefix) {
			return true
		}
	}
	return false
}

// mountsDeclared reports whether the pod has all volumes that a container mounts.
func mountsDeclared(doc any, path string) bool {
	declared := map[string]bool{"": true}
	if volumes, ok := get(doc, "spec", "volumes").(*list); ok {
		for _, v := range volumes.items {
			declared[text(v, "name")] = true
		}
	}
	kind := "volumeMounts"
	if strings.Contains(path, ".volumeDevices.") {
		kind = "volumeDevices"
	}
	mounts, _ := get(containerOf(doc, path), kind).(*list)
	return mounts != nil && !slices.ContainsFunc(mounts.items, func(m any) bool { return !declared[text(m, "name")] })
}

func fieldRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "all problems at once", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet looks at nothing else in a manifest without a name, and not into a probe or hook where none may be; ours names every problem.",
		Explains: func(s scene) bool {
			prefix, path, ok := onlyOurs(s)
			facts := s.KubeletFacts[s.Step]
			if prefix, _, isImage := strings.Cut(s.Fact, "image "); isImage && s.Kubelet == "" {
				return facts[prefix+"problem metadata.name"] != ""
			}
			if !ok {
				return false
			}
			if text(document(s), "metadata", "name") == "" {
				return facts[prefix+"problem metadata.name"] != ""
			}
			if path == "spec.volumes.name Duplicate" {
				return hasProblem(facts, prefix+"problem spec.volumes")
			}
			if ports, ok := strings.CutSuffix(path, ".ports.name Duplicate"); ok {
				return hasProblem(facts, prefix+"problem "+ports+".ports.name")
			}
			if before, _, ok := strings.Cut(path, ".restartPolicyRules"); ok && facts[prefix+"problem "+before+".restartPolicy"] != "" {
				return true
			}
			return slices.ContainsFunc(ancestors(path), func(parent string) bool { return facts[prefix+"problem "+parent] != "" })
		},
	}, {
		Name: "restart policies of init containers", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet accepts an init container with a restart policy of Never or OnFailure; ours refuses it.",
		Explains: func(s scene) bool {
			_, path, ok := onlyOurs(s)
			own := text(containerOf(document(s), path), "restartPolicy")
			return ok && strings.HasPrefix(path, "spec.initContainers[") && strings.HasSuffix(path, "].restartPolicy") && (own == "Never" || own == "OnFailure")
		},
	}}
}

// stricterRules are about what ours refuses and the kubelet accepts.
func stricterRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "negative grace period", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet takes a negative terminationGracePeriodSeconds for one second; ours refuses it.",
		Explains: func(s scene) bool {
			_, path, ok := onlyOurs(s)
			n, _ := get(document(s), "spec", "terminationGracePeriodSeconds").(number)
			return ok && (path == "spec.terminationGracePeriodSeconds" || strings.HasSuffix(path, ".sleep.seconds")) && strings.HasPrefix(string(n), "-")
		},
	}, {
		Name: "UIDs that are no names", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet accepts any text as a UID; ours refuses one that cannot be the name of a folder or has an underscore.",
		Explains: func(s scene) bool {
			_, path, ok := onlyOurs(s)
			uid := text(document(s), "metadata", "uid")
			return ok && path == "metadata.uid" && (strings.Contains(uid, "_") || len(utilvalidation.IsValidLabelValue(uid)) > 0)
		},
	}, {
		Name: "pods that are none of their own", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet accepts a manifest that is marked as a mirror or as being deleted; ours refuses it.",
		Explains: func(s scene) bool {
			_, path, ok := onlyOurs(s)
			meta := get(document(s), "metadata")
			switch path {
			case "metadata.deletionTimestamp":
				return ok && get(meta, "deletionTimestamp") != nil
			case "metadata.deletionGracePeriodSeconds":
				return ok && get(meta, "deletionGracePeriodSeconds") != nil
			default:
				return ok && path == "metadata.annotations" && get(meta, "annotations", "kubernetes.io/config.mirror") != nil
			}
		},
	}, {
		Name: "host ports of sidecars", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet accepts a container with a host port of an init container that stays; ours refuses the pod.",
		Explains: func(s scene) bool {
			_, path, ok := onlyOurs(s)
			if !ok || !strings.HasSuffix(path, ".ports.hostPort Duplicate") {
				return false
			}
			doc := document(s)
			sidecar := func(c any) bool { return text(c, "restartPolicy") == "Always" }
			if path == "spec.initContainers.ports.hostPort Duplicate" {
				all, _ := get(doc, "spec", "initContainers").(*list)
				return all != nil && slices.ContainsFunc(all.items, func(c any) bool { return sidecar(c) && hasPort(doc, c, "initContainers", sidecar) })
			}
			return hasPort(doc, containerOf(doc, path), "initContainers", sidecar)
		},
	}}
}

// isPodRequest reports whether a fact is a request of the pod that ours takes from its
// limit.
func isPodRequest(s scene) bool {
	pod, what, _ := podFact(s.Fact)
	name, ok := strings.CutPrefix(what, ".spec.resources.requests.")
	return ok && s.Ours == s.OursFacts[s.Step]["pod "+pod+" .spec.resources.limits."+name]
}

// laxerRules are about what the kubelet refuses and ours accepts.
func laxerRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "equal host ports of an init container", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet refuses an init container that has a host port twice; ours accepts it if the container does not stay.",
		Explains: func(s scene) bool {
			_, path, ok := onlyKubelet(s)
			all, _ := get(document(s), "spec", "initContainers").(*list)
			return ok && path == "spec.initContainers.ports.hostPort Duplicate" && all != nil && slices.ContainsFunc(all.items, func(c any) bool {
				ports := portsOf(c, get(document(s), "spec", "hostNetwork") == true)
				slices.Sort(ports)
				return text(c, "restartPolicy") != "Always" && len(slices.Compact(slices.Clone(ports))) < len(ports)
			})
		},
	}, {
		Name: "host ports of init containers", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet accepts an init container on the host's network with a host port that is not its container port; ours refuses it.",
		Explains: func(s scene) bool {
			_, path, ok := onlyOurs(s)
			return ok && strings.HasPrefix(path, "spec.initContainers[") && strings.HasSuffix(path, ".ports.hostPort Invalid") && get(document(s), "spec", "hostNetwork") == true
		},
	}, {
		Name: "requests of the pod", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet takes the sum of its containers' requests for the request of a pod that has only a limit, and refuses it if that is more than the limit; ours takes the limit.",
		Explains: func(s scene) bool {
			if isPodRequest(s) {
				return true
			}
			if prefix, path, ok := onlyOurs(s); ok {
				return path == "spec.resources.requests negative" && s.KubeletFacts[s.Step][prefix+"problem spec.resources.limits negative"] != ""
			}
			_, path, ok := onlyKubelet(s)
			return ok && strings.HasPrefix(path, "spec.resources.requests ") && get(document(s), "spec", "resources", "limits") != nil
		},
	}, {
		Name: "mounts of bad volumes", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet counts a bad volume as one that is not declared, and complains of each of its mounts; ours complains of the volume.",
		Explains: func(s scene) bool {
			prefix, path, ok := onlyKubelet(s)
			if !ok || !strings.HasSuffix(path, " NotFound") {
				return false
			}
			unnamed := s.KubeletFacts[s.Step][prefix+"problem "+strings.TrimSuffix(path, "NotFound")+"Required"] != ""
			return (unnamed || hasProblem(s.KubeletFacts[s.Step], prefix+"problem spec.volumes")) && mountsDeclared(document(s), path)
		},
	}, {
		Name: "accepted by ours", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The kubelet does not run a pod with a problem that ours does not find; ours does.",
		Explains: derived,
	}}
}

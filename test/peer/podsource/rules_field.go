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

// derived explains facts about a pod whose document the kubelet rejects and our source
// accepts: the kubelet has no such pod, or still has the pods of the previous response.
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
		Name: "all problems of a manifest", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet skips the other checks of a manifest without a name, and the checks of a probe or hook that is not allowed; ours reports every problem.",
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
	}}
}

// isOfLinux reports whether a field is forbidden in a pod for Windows.
func isOfLinux(path string) bool {
	switch path {
	case "spec.resources", "spec.hostPID", "spec.hostIPC", "spec.hostUsers", "spec.shareProcessNamespace":
		return true
	}
	_, name, ok := strings.Cut(path, "securityContext.")
	return ok && slices.Contains([]string{
		"appArmorProfile", "seLinuxOptions", "seLinuxChangePolicy", "seccompProfile", "sysctls", "fsGroup", "fsGroupChangePolicy", "runAsUser",
		"runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "capabilities", "readOnlyRootFilesystem", "privileged",
		"allowPrivilegeEscalation", "procMount",
	}, name)
}

// stricterRules are about documents that our source rejects and the kubelet accepts.
func stricterRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "UIDs unusable as directory names", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet accepts any text as a UID; ours rejects a UID that cannot be the name of a folder or has an underscore.",
		Explains: func(s scene) bool {
			_, path, ok := onlyOurs(s)
			uid := text(document(s), "metadata", "uid")
			return ok && path == "metadata.uid" && (strings.Contains(uid, "_") || len(utilvalidation.IsValidLabelValue(uid)) > 0)
		},
	}, {
		Name: "manifests of mirror or deleted pods", Class: judge.Deliberate, Doc: docPath,
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
	}}
}

// laxerRules are about documents that the kubelet rejects and our source accepts.
func laxerRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "mounts of invalid volumes", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet treats an invalid volume as not declared, and reports each of its mounts; ours reports the volume.",
		Explains: func(s scene) bool {
			prefix, path, ok := onlyKubelet(s)
			if !ok || !strings.HasSuffix(path, " NotFound") {
				return false
			}
			unnamed := s.KubeletFacts[s.Step][prefix+"problem "+strings.TrimSuffix(path, "NotFound")+"Required"] != ""
			return (unnamed || hasProblem(s.KubeletFacts[s.Step], prefix+"problem spec.volumes")) && mountsDeclared(document(s), path)
		},
	}, {
		Name: "Linux-only fields in Windows pods", Class: judge.Deliberate, Doc: docPath,
		Sentence: neverRunSentence,
		Explains: func(s scene) bool {
			_, path, ok := onlyKubelet(s)
			return ok && text(document(s), "spec", "os", "name") == "windows" && isOfLinux(path)
		},
	}, {
		Name: "pods that only ours accepts", Class: judge.Deliberate, Doc: docPath,
		Sentence: neverRunSentence,
		Explains: derived,
	}}
}

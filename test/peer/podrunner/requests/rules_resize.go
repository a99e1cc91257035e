package requests

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// resizeRules are about changes of resources while containers run.
func resizeRules() []rule {
	return []rule{
		{
			Name: "removed container limits", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "The kubelet sends zero for a limit that was removed, so the runtime keeps the old limit and the status still shows it. This package sends -1, which removes the limit.",
			Explains: func(s scene) bool {
				request, name, field := about(s)
				return request == "update" && (field == "linux/cpu_quota" || field == "linux/memory_limit_in_bytes") && s.Ours == "-1" &&
					(s.Kubelet == "" || s.Kubelet == previous(s, name, strings.TrimPrefix(field, "linux/")))
			},
		},
		{
			Name: "huge pages in a resize", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "If a container has limits of huge pages, the kubelet sends zero for these limits with each change of CPU or memory; this package sends the container's limits.",
			Explains: func(s scene) bool {
				request, name, field := about(s)
				c := named(pod(s), name)
				return request == "update" && field == "linux/hugepage_limits" && c != nil &&
					s.Kubelet == pageLimits(s) && (s.Ours == pageLimits(s, c.Resources.Limits) || s.Ours == "" && !updated(s, name))
			},
		},
	}
}

// updated reports whether our side changed something of a container.
func updated(s scene, name string) bool {
	for fact := range s.OursFacts[s.Step] {
		if strings.HasPrefix(fact, "update "+name+"/") {
			return true
		}
	}
	return false
}

// previous returns the limit that the kubelet set for a container before this step.
func previous(s scene, name, field string) (value string) {
	for _, facts := range s.KubeletFacts[:s.Step] {
		for _, fact := range []string{"create " + name + "/linux/resources/" + field, "update " + name + "/linux/" + field} {
			if v, ok := facts[fact]; ok {
				value = v
			}
		}
	}
	return value
}

// pageLimits returns the huge page limits for the node's page sizes, in the form of a fact.
// Later lists override earlier ones.
func pageLimits(s scene, lists ...corev1.ResourceList) string {
	if len(s.World.Node.HugePages) == 0 {
		return ""
	}
	var all []map[string]any
	for _, size := range s.World.Node.HugePages {
		m := map[string]any{"page_size": size}
		for _, limits := range lists {
			name := corev1.ResourceName("hugepages-" + map[string]string{"2MB": "2Mi", "1GB": "1Gi", "64KB": "64Ki"}[size])
			if q, ok := limits[name]; ok && !q.IsZero() {
				m["limit"] = q.Value()
			}
		}
		all = append(all, m)
	}
	return text(generic(all))
}

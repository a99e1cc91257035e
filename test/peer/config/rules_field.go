package config

import (
	"slices"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// fieldRules are about single fields.
func fieldRules() []judge.Rule[*world] { return slices.Concat(looserRules(), stricterRules()) }

// looserRules are mostly about values that the kubelet rejects and our package accepts.
func looserRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "enforceNodeAllocatable with cgroupsPerQOS false", Class: judge.Deliberate, Doc: docPath,
		Sentence: "With cgroupsPerQOS false, which is the default of Load, ours accepts the values pods and none of enforceNodeAllocatable, and sets no cgroup limit for all pods together. The kubelet only accepts cgroupsPerQOS false if enforceNodeAllocatable is set to none.",
		Explains: func(s scene) bool {
			c := s.World.accepted
			return s.Fact == "refused cgroupsPerQOS" && s.Kubelet == "yes" && s.Ours == "" && c.CgroupsPerQOS != nil && !*c.CgroupsPerQOS &&
				len(c.EnforceNodeAllocatable) > 0 && !slices.Equal(c.EnforceNodeAllocatable, []string{"none"})
		},
	}, {
		Name: "imageMaximumGCAge below imageMinimumGCAge", Class: judge.Deliberate, Doc: docPath,
		Sentence: "Ours accepts an imageMaximumGCAge that is not longer than imageMinimumGCAge, and still never deletes an image before imageMinimumGCAge; the kubelet refuses the file.",
		Explains: func(s scene) bool {
			c := s.World.accepted
			return s.Fact == "refused imageMaximumGCAge" && s.Kubelet == "yes" && s.Ours == "" && c.ImageMaximumGCAge.Duration > 0 && c.ImageMaximumGCAge.Duration <= c.ImageMinimumGCAge.Duration
		},
	}}
}

// stricterRules are mostly about values that our package rejects and the kubelet accepts.
func stricterRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "cgroup settings without cgroupsPerQOS", Class: judge.Deliberate, Doc: docPath,
		Sentence: "In ours, settings of pods' cgroups require the driver cgroupfs, and cgroupsPerQOS or a cgroupRoot. The kubelet accepts other combinations, and podPidsLimit 0; ours refuses both.",
		Explains: func(s scene) bool {
			if s.Kubelet != "" || s.Ours != "yes" {
				return false
			}
			c := s.World.accepted
			set, _ := s.World.value("cgroupsPerQOS")
			on := set == "true" || set != "false" && c.CgroupRoot != ""
			switch s.Fact {
			case "refused podPidsLimit":
				return *c.PodPidsLimit == 0 || *c.PodPidsLimit > 0 && !on
			case "refused cgroupRoot":
				return c.CgroupRoot != "" && !on
			case "refused cgroupDriver":
				return c.CgroupDriver != "cgroupfs" && c.CgroupDriver != "systemd" || c.CgroupDriver == "systemd" && on
			default:
				return false
			}
		},
	}, {
		Name: "unsupported values of enforceNodeAllocatable", Class: judge.Deliberate, Doc: docPath,
		Sentence: "Ours only supports the values pods and none of enforceNodeAllocatable; the kubelet has more values, such as system-reserved.",
		Explains: func(s scene) bool {
			c := s.World.accepted
			return s.Fact == "refused enforceNodeAllocatable" && s.Kubelet == "" && s.Ours == "yes" &&
				slices.ContainsFunc(c.EnforceNodeAllocatable, func(e string) bool { return e != "pods" && e != "none" })
		},
	}, {
		Name: "enableServer false", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet can run without its server; ours refuses enableServer false, because the agent's commands send requests to the server.",
		Explains: func(s scene) bool {
			value, _ := s.World.value("enableServer")
			return s.Fact == "refused enableServer" && s.Ours == "yes" && value == "false"
		},
	}, {
		Name: "merged default eviction thresholds", Class: judge.Deliberate, Doc: docPath,
		Sentence: "With mergeDefaultEvictionSettings, the kubelet adds the default thresholds to the field evictionHard. Ours leaves the field as it is in the file, and adds the defaults in Settings.Thresholds and Settings.Policies.",
		Explains: isMerged,
	}}
}

package requests

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// securityRules are about security contexts.
func securityRules() []rule {
	return []rule{
		{
			Name: "order of groups", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "The kubelet names fsGroup before the supplemental groups; ours after them.",
			Explains: func(s scene) bool {
				p := pod(s).Spec.SecurityContext
				if !strings.HasSuffix(s.Fact, "/security_context/supplemental_groups") || p == nil || p.FSGroup == nil {
					return false
				}
				return s.Kubelet == numbers(slices.Concat([]int64{*p.FSGroup}, p.SupplementalGroups)) &&
					s.Ours == numbers(slices.Concat(p.SupplementalGroups, []int64{*p.FSGroup}))
			},
		},
		{
			Name: "user of the image", Class: judge.DefectOfOurs, Item: "23",
			Sentence: "The kubelet names the image's user where the pod names none; ours leaves it to the runtime, so that the image's group counts, unless the pod names a group.",
			Explains: func(s scene) bool {
				request, name, field := about(s)
				if request != "create" || container(s) == nil || s.Ours != "" {
					return false
				}
				c, p := container(s), pod(s).Spec.SecurityContext
				if c.SecurityContext != nil && (c.SecurityContext.RunAsUser != nil || c.SecurityContext.RunAsGroup != nil) ||
					p != nil && (p.RunAsUser != nil || p.RunAsGroup != nil) {
					return false
				}
				image, _ := s.World.image(kubeletFact(s, "create "+name+"/image/image"))
				switch field {
				case "linux/security_context/run_as_username":
					return image.UID == nil && s.Kubelet == image.Username
				case "linux/security_context/run_as_user":
					return s.Kubelet == "{}" && (image.UID == nil && image.Username == "" || image.UID != nil && *image.UID == 0)
				case "linux/security_context/run_as_user/value":
					return image.UID != nil && s.Kubelet == strconv.FormatInt(*image.UID, 10)
				}
				return false
			},
		},
		{
			Name: "old field for AppArmor", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "The kubelet names the AppArmor profile in the CRI's deprecated field, too, for old runtimes; ours does not.",
			Explains: func(s scene) bool {
				request, _, field := about(s)
				if request != "create" || field != "linux/security_context/apparmor_profile" || s.Ours != "" {
					return false
				}
				if ref := ourFact(s, beside(s, "apparmor/localhost_ref")); ref != "" {
					return s.Kubelet == "localhost/"+ref
				}
				// RuntimeDefault is zero, and a message of zeros is {}.
				return s.Kubelet == map[string]string{"{}": "runtime/default"}[ourFact(s, beside(s, "apparmor"))] ||
					s.Kubelet == map[string]string{"1": "unconfined"}[ourFact(s, beside(s, "apparmor/profile_type"))]
			},
		},
		{
			Name: "masked paths of privileged containers", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "The kubelet names masked and read-only paths for privileged containers, too, which runtimes ignore; ours names none.",
			Explains: func(s scene) bool {
				request, _, field := about(s)
				return request == "create" && (field == "linux/security_context/masked_paths" || field == "linux/security_context/readonly_paths") &&
					s.Ours == "" && s.Kubelet == hidden(field) && kubeletFact(s, beside(s, "privileged")) == "true"
			},
		},
		{
			Name: "parameters with slashes after the first turn", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "With requests after the one that makes a sandbox the kubelet sends the names of kernel parameters as the pod has them, with slashes; ours always with dots.",
			Explains: func(s scene) bool {
				i := strings.Index(s.Fact, "/sandbox/linux/sysctls/")
				if i < 0 || s.Ours != "" {
					return false
				}
				name := s.Fact[i+len("/sandbox/linux/sysctls/"):]
				for _, p := range pod(s).Spec.SecurityContext.Sysctls {
					if strings.Contains(p.Name, "/") && (p.Name == name && s.Kubelet == lastSysctl(s, p.Name) || strings.ReplaceAll(p.Name, "/", ".") == name && s.Kubelet == "(not set)") {
						return true
					}
				}
				return false
			},
		},
		{
			Name: "processes of a target", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "An ephemeral container shares the processes of its target in the kubelet only where each container of the pod has its own; ours names the target even where the pod or the node shares them all.",
			Explains: func(s scene) bool {
				spec, prefix := pod(s).Spec, "linux/security_context/namespace_options/"
				if !spec.HostPID && !isTrue(spec.ShareProcessNamespace) {
					return false
				}
				for _, e := range spec.EphemeralContainers {
					switch s.Fact {
					case "create " + e.Name + "/" + prefix + "pid":
						return e.TargetContainerName != "" && s.Ours == "3" && (s.Kubelet == "2") == spec.HostPID
					case "create " + e.Name + "/" + prefix + "target_id":
						return s.Kubelet == "" && strings.HasPrefix(s.Ours, "container-"+e.TargetContainerName+"-")
					}
				}
				return false
			},
		},
		{
			Name: "privileged ephemeral containers", Class: judge.DefectOfOurs, Item: "23a",
			Sentence: "The sandbox's configuration that goes with a privileged ephemeral container is privileged in the kubelet; in ours it is not, and runtimes refuse the container.",
			Explains: func(s scene) bool {
				if !strings.HasSuffix(s.Fact, "sandbox/linux/security_context/privileged") || s.Kubelet != "true" || s.Ours != "" {
					return false
				}
				return slices.ContainsFunc(pod(s).Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool {
					return e.SecurityContext != nil && isTrue(e.SecurityContext.Privileged)
				})
			},
		},
	}
}

// lastSysctl is the value of a parameter: the last one wins.
func lastSysctl(s scene, name string) (value string) {
	for _, p := range pod(s).Spec.SecurityContext.Sysctls {
		if p.Name == name {
			value = p.Value
		}
	}
	return value
}

// numbers returns a list as a fact has it.
func numbers(all []int64) string {
	if len(all) == 0 {
		return ""
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// hidden are the paths that a container without privileges can't read or write.
func hidden(field string) string {
	if strings.HasSuffix(field, "masked_paths") {
		return `["/proc/asound","/proc/acpi","/proc/interrupts","/proc/kcore","/proc/keys","/proc/latency_stats","/proc/timer_list","/proc/timer_stats","/proc/sched_debug","/proc/scsi","/sys/firmware","/sys/devices/virtual/powercap"]`
	}
	return `["/proc/bus","/proc/fs","/proc/irq","/proc/sys","/proc/sysrq-trigger"]`
}

package requests

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// containerRules are about the environment of a container: variables, arguments, files.
func containerRules() []rule {
	return []rule{
		{
			Name: "image_sub_path of non-image mounts", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "If a pod mounts an image, the kubelet sends the subPath of every other mount as an image sub-path too. This package sends an image sub-path only for images.",
			Explains: func(s scene) bool {
				hostPath := kubeletFact(s, beside(s, "host_path"))
				return strings.HasSuffix(s.Fact, "/image_sub_path") && s.Ours == "" && hostPath != "" && strings.HasSuffix(hostPath, "/"+s.Kubelet)
			},
		},
		{
			Name: "pod IPs in first hosts file", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "In the sync that creates a pod's sandbox the kubelet writes all addresses of the pod into the hosts file, in the runtime's order. Later it writes the first of each family, as in the status. This package always writes only the first address of each family.",
			Explains: func(s scene) bool {
				return s.Fact == "file etc-hosts" && s.Kubelet != s.Ours && s.Ours == hostsInOrder(s, s.Kubelet)
			},
		},
		{
			Name: "restart count from log-like file names", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "To compute the restart count, the kubelet reads the names of all files in a container's log directory that begin like the name of a log, such as 8.logs. This package reads only the names of logs and rotated logs.",
			Explains: func(s scene) bool {
				_, name, field := about(s)
				if strings.HasSuffix(field, "/target_id") && slices.Contains(s.World.Logs, "8.logs") {
					for ran := range len(s.World.Steps) {
						if s.Kubelet == strings.Replace(s.Ours, fmt.Sprintf("-%d-sandbox", nextLog(s.World.Logs)+ran), fmt.Sprintf("-%d-sandbox", 9+ran), 1) {
							return true
						}
					}
				}
				if name != pod(s).Spec.Containers[0].Name || !slices.Contains(s.World.Logs, "8.logs") {
					return false
				}
				theirs, ours := kubeletFact(s, "create "+name+"/annotations/io.kubernetes.container.restartCount"), ourFact(s, "create "+name+"/annotations/io.kubernetes.container.restartCount")
				ran := 0
				if n, err := strconv.Atoi(theirs); err == nil {
					ran = n - 9
				}
				if ours != strconv.Itoa(nextLog(s.World.Logs)+ran) || ran < 0 {
					return false
				}
				switch field {
				case "metadata/attempt":
					return s.Kubelet == theirs && (s.Ours == ours || ours == "0" && s.Ours == "")
				case "annotations/io.kubernetes.container.restartCount":
					return s.Kubelet == theirs && s.Ours == ours
				case "log_path":
					return s.Kubelet == name+"/"+theirs+".log" && s.Ours == name+"/"+ours+".log"
				}
				return false
			},
		},
	}
}

// nextLog returns the restart count after those of the existing logs.
func nextLog(names []string) (next int) {
	for _, name := range names {
		m := regexp.MustCompile(`^(\d{1,9})\.log(\..*)?$`).FindStringSubmatch(name)
		if m == nil {
			continue
		}
		if n, err := strconv.Atoi(m[1]); err == nil {
			next = max(next, n+1)
		}
	}
	return next
}

// inOrder returns the pod's addresses in the order of its status.
func inOrder(s scene) (ordered []string) {
	ips := s.World.PodIPs
	six := func(ip string) bool { return strings.Contains(ip, ":") }
	for _, family := range []bool{six(s.World.Node.IPs[0]), !six(s.World.Node.IPs[0])} {
		if i := slices.IndexFunc(ips, func(ip string) bool { return six(ip) == family }); i >= 0 {
			ordered = append(ordered, ips[i])
		}
	}
	return ordered
}

// hostsInOrder returns a hosts file in which the lines with the pod's addresses are as the
// kubelet writes them.
func hostsInOrder(s scene, file string) string {
	if pod(s).Spec.HostNetwork {
		return file
	}
	names := ""
	var lines []string
	for line := range strings.Lines(file) {
		ip, rest, _ := strings.Cut(line, "\t")
		switch {
		case slices.Contains(s.World.PodIPs, ip) && names == "":
			names = rest
			for _, ip := range inOrder(s) {
				lines = append(lines, ip+"\t"+names)
			}
		case slices.Contains(s.World.PodIPs, ip) && rest == names:
		default:
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

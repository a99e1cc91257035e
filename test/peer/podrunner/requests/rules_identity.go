package requests

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// refusalRules are about pods that a Runner rejects.
func refusalRules() []rule {
	return []rule{{
		Name: "pods with unsupported fileKeyRef variables", Class: judge.Deliberate, Doc: ourDoc, Ends: true,
		Sentence: "If a pod has a field that this package does not support, such as a variable from a file (KEP-3721), [Runner.Unsupported] returns an error and the agent rejects the whole pod. The kubelet starts the pod.",
		Explains: func(s scene) bool {
			if s.Fact == "refused" {
				return s.Kubelet == "" && s.Ours == strings.Join(filesOfVariables(s), "; ")
			}
			return s.Ours == "" && ourFact(s, "refused") != ""
		},
	}}
}

// filesOfVariables returns the fields that a Runner rejects.
func filesOfVariables(s scene) (all []string) {
	spec := &pod(s).Spec
	add := func(path string, i int, name string) {
		for j, e := range named(pod(s), name).Env {
			if e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil {
				all = append(all, path+"["+strconv.Itoa(i)+"].env["+strconv.Itoa(j)+"].valueFrom.fileKeyRef: not supported")
			}
		}
	}
	for i := range spec.InitContainers {
		add("spec.initContainers", i, spec.InitContainers[i].Name)
	}
	for i := range spec.Containers {
		add("spec.containers", i, spec.Containers[i].Name)
	}
	for i := range spec.EphemeralContainers {
		add("spec.ephemeralContainers", i, spec.EphemeralContainers[i].Name)
	}
	return all
}

// identityRules are about names, labels, annotations and files.
func identityRules() []rule {
	return []rule{
		{
			Name: "agent label on sandboxes and containers", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "Each sandbox and container has the label io.kubeparts.agent with the agent's name, because an agent touches only what it created. The kubelet sets no such label.",
			Explains: func(s scene) bool {
				return strings.HasSuffix(s.Fact, "/labels/io.kubeparts.agent") && s.Kubelet == "" && s.Ours == "peer"
			},
		},
		{
			Name: "hash of the whole container definition", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "The kubelet's hash of a container's definition covers its name and image. The hash of this package covers everything except resources and the resize policy, because pods from files may change in other ways.",
			Explains: func(s scene) bool {
				request, _, field := about(s)
				c := container(s)
				return request == "create" && field == "annotations/io.kubeparts.container.definition" && c != nil && s.Kubelet == "" && s.Ours == podspec.ContainerHash(c)
			},
		},
		{
			Name: "name of the termination message file", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "The name of a termination message file is the restart count of the container, so that the Runner can find and remove the file. The kubelet chooses a random name and keeps the file as long as the pod (kubernetes#106735).",
			Explains: func(s scene) bool {
				random, attempt := regexp.MustCompile(`^(.*/containers/[^/]+/)[0-9a-f]{8}$`), ourFact(s, "create "+nameOf(s)+"/annotations/io.kubernetes.container.restartCount")
				m := random.FindStringSubmatch(s.Kubelet)
				return strings.HasSuffix(s.Fact, "/host_path") && m != nil && s.Ours == m[1]+attempt
			},
		},
	}
}

// nameOf is the container's name in a fact about it.
func nameOf(s scene) string {
	_, name, _ := about(s)
	return name
}

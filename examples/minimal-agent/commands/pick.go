package commands

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// pick returns the pod that arg (NAME or NAMESPACE/NAME) matches. It tries, in this order: the
// pod with that name, the static pod whose manifest has that name, and the only pod whose name
// begins with that name.
func pick(status api.Status, arg string) (api.Pod, error) {
	namespace, name, ok := strings.Cut(arg, "/")
	if !ok {
		namespace, name = "", arg
	}
	for _, matches := range []func(string) bool{
		func(have string) bool { return have == name },
		func(have string) bool { return have == name+"-"+status.Node.Name },
		func(have string) bool { return name != "" && strings.HasPrefix(have, name) },
	} {
		var found []api.Pod
		for _, p := range status.Pods {
			if matches(p.Name) && (namespace == "" || namespace == p.Namespace) {
				found = append(found, p)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return api.Pod{}, Usage(fmt.Errorf("%q is ambiguous: it matches %s", arg, strings.Join(names(found), ", ")))
		}
	}
	have := "the agent has no pods"
	if len(status.Pods) > 0 {
		have = "the agent has " + strings.Join(names(status.Pods), ", ")
	}
	if len(status.Problems) > 0 {
		have += fmt.Sprintf("; the command status lists %s with manifests", plural(len(status.Problems), "problem"))
	}
	return api.Pod{}, &noPodError{namespace: cmp.Or(namespace, "default"), name: name, text: fmt.Sprintf("pod %q not found: %s", arg, have)}
}

// noPodError is the error if no pod matches an argument. It has the name in the argument, and
// the namespace in the argument or the default namespace.
type noPodError struct{ namespace, name, text string }

func (e *noPodError) Error() string { return e.text }

func names(pods []api.Pod) []string {
	var all []string
	for _, p := range pods {
		all = append(all, printable.Line(fullName(p)))
	}
	return all
}

func fullName(p api.Pod) string { return p.Namespace + "/" + p.Name }

// scope is the flag -n.
type scope struct{ namespace string }

func (s *scope) register(flags *flag.FlagSet) {
	for _, name := range []string{"n", "namespace"} {
		flags.StringVar(&s.namespace, name, "", "namespace of the pods. If the command names a pod, -n is needed only if several namespaces have a pod of this name")
	}
}

// arg returns a pod's name with the namespace of the flag, unless the name has a namespace. As in
// kubectl, the name may begin with pod/.
func (s *scope) arg(name string) string {
	if short, ok := strings.CutPrefix(name, "pod/"); ok {
		name = short
	}
	if s.namespace == "" || strings.Contains(name, "/") {
		return name
	}
	return s.namespace + "/" + name
}

// find queries the agent for the pod that arg matches.
func find(ctx context.Context, client *api.Client, arg string) (api.Pod, error) {
	status, err := client.Status(ctx)
	if err != nil {
		return api.Pod{}, err
	}
	return pick(status, arg)
}

package commands

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// pick finds the pod that is meant by NAME or NAMESPACE/NAME: the one of that name,
// else the one whose manifest has it, else the only one that begins so.
func pick(status api.Status, meant string) (api.Pod, error) {
	namespace, name, ok := strings.Cut(meant, "/")
	if !ok {
		namespace, name = "", meant
	}
	for _, fits := range []func(string) bool{
		func(have string) bool { return have == name },
		func(have string) bool { return have == name+"-"+status.Node.Name },
		func(have string) bool { return name != "" && strings.HasPrefix(have, name) },
	} {
		var found []api.Pod
		for _, p := range status.Pods {
			if fits(p.Name) && (namespace == "" || namespace == p.Namespace) {
				found = append(found, p)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return api.Pod{}, Usage(fmt.Errorf("%q may be any of %s", meant, strings.Join(names(found), ", ")))
		}
	}
	there := "none at all"
	if len(status.Pods) > 0 {
		there = strings.Join(names(status.Pods), ", ")
	}
	if len(status.Problems) > 0 {
		there += fmt.Sprintf("; status tells %s of manifests", many(len(status.Problems), "problem"))
	}
	return api.Pod{}, &noPodError{namespace: cmp.Or(namespace, "default"), name: name, text: fmt.Sprintf("there is no pod %q: there are %s", meant, there)}
}

// noPodError says that no pod is meant by a name, and what would be its whole name.
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

// find asks the agent for the pod that is meant.
func find(ctx context.Context, client *api.Client, meant string) (api.Pod, error) {
	status, err := client.Status(ctx)
	if err != nil {
		return api.Pod{}, err
	}
	return pick(status, meant)
}

package commands

import (
	"context"
	"flag"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// podSelector has the flags -l and -A.
type podSelector struct {
	selector labels.Selector // nil: not set
	all      bool
}

func (s *podSelector) register(flags *flag.FlagSet) {
	for _, name := range []string{"l", "selector"} {
		flags.Func(name, "label `selector`, such as app=web or 'tier in (a,b)'", func(text string) (err error) {
			if s.selector, err = labels.Parse(text); err != nil {
				return fmt.Errorf("is not a label selector: %w", err)
			}
			return nil
		})
	}
	for _, name := range []string{"A", "all-namespaces"} {
		flags.BoolVar(&s.all, name, false, "select pods in all namespaces; this is the default without -n")
	}
}

func (s *podSelector) set() bool { return s.selector != nil }

// filter returns the pods whose labels match, or all pods without the flag -l. The labels are those
// of the pods' definitions. A pod that no source defines any more has no labels.
func (s *podSelector) filter(ctx context.Context, client *api.Client, pods []api.Pod) (selected []api.Pod, err error) {
	if !s.set() {
		return pods, nil
	}
	list, err := client.Pods(ctx)
	if err != nil {
		return nil, err
	}
	byUID := map[string]labels.Set{}
	for i := range list.Items {
		byUID[string(list.Items[i].UID)] = list.Items[i].Labels
	}
	for _, p := range pods {
		if s.selector.Matches(byUID[p.UID]) {
			selected = append(selected, p)
		}
	}
	return selected, nil
}

// within returns the pods in the namespace of the flag -n, or all pods without the flag.
func (s *scope) within(pods []api.Pod) (selected []api.Pod) {
	for _, p := range pods {
		if s.namespace == "" || p.Namespace == s.namespace {
			selected = append(selected, p)
		}
	}
	return selected
}

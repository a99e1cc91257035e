package main

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// startup is what the agent tells of its beginning.
type startup struct {
	mu    sync.Mutex
	found map[types.UID]bool // the pods that ran
	// names are theirs, as NAMESPACE/NAME; nil if nobody knows them.
	names   map[string]bool
	told    bool
	adopted int
}

// lookAround tells which of this agent's pods run already.
func (a *agent) lookAround(ctx context.Context) {
	boxes, err := a.node.cri.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		LabelSelector: a.ownLabels(),
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil {
		a.log.WarnContext(ctx, "which pods run already is not known", "err", err)
		return
	}
	a.startup.mu.Lock()
	defer a.startup.mu.Unlock()
	a.startup.found, a.startup.names = map[types.UID]bool{}, map[string]bool{}
	for _, b := range boxes {
		a.startup.names[b.GetMetadata().GetNamespace()+"/"+b.GetMetadata().GetName()] = true
		if uid := crilabels.UID(b.GetLabels()); uid != "" {
			a.startup.found[uid] = true
		}
	}
	a.console.say("found %d pods of this agent that run", len(a.startup.found))
}

// sourcesRead tells, once, what the manifests ask for and how much of it runs already.
// What else was found is taken down.
func (a *agent) sourcesRead(pods []*corev1.Pod) {
	s := &a.startup
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told {
		return
	}
	s.told = true
	for _, p := range pods {
		if s.found[p.UID] {
			s.adopted++
		}
	}
	sources := []string{a.manifestDir}
	if a.opts.StaticPodURL != "" {
		sources = append(sources, a.opts.StaticPodURL)
	}
	a.console.say("adopted %d of them", s.adopted)
	a.console.say("%d pods are asked for by %s", len(pods), strings.Join(sources, " and "))
}

// foundNamesake says whether a pod of that name may have run already.
func (s *startup) foundNamesake(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names == nil || s.names[pod.Namespace+"/"+pod.Name]
}

// count returns how many pods were adopted.
func (s *startup) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.adopted
}

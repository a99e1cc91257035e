package conformance

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func listChecks() []check {
	return []check{
		{name: "list/filters-pods", run: checkPodFilters},
		{name: "list/filters-containers", run: checkContainerFilters},
		{name: "list/agrees-with-status", run: checkListAgrees},
		{name: "list/everything-once", run: checkListOnce},
	}
}

func checkPodFilters(p *probe) {
	odd, even := p.runPod(), p.runPod()
	p.stopPod(even.id)
	state := func(s runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStateValue {
		return &runtimeapi.PodSandboxStateValue{State: s}
	}
	isReady, isNot := runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	group := map[string]string{labelRun: p.run, labelGroup: "odd"}
	for name, tc := range map[string]struct {
		filter *runtimeapi.PodSandboxFilter
		want   []string
	}{
		"by label":                      {p.ourPods(), []string{odd.id, even.id}},
		"by two labels":                 {&runtimeapi.PodSandboxFilter{LabelSelector: group}, []string{odd.id}},
		"by id":                         {&runtimeapi.PodSandboxFilter{Id: even.id}, []string{even.id}},
		"by an unknown id":              {&runtimeapi.PodSandboxFilter{Id: unknownID}, nil},
		"by id and label":               {&runtimeapi.PodSandboxFilter{Id: even.id, LabelSelector: group}, nil},
		"ready":                         {&runtimeapi.PodSandboxFilter{LabelSelector: p.ourPods().GetLabelSelector(), State: state(isReady)}, []string{odd.id}},
		"not ready":                     {&runtimeapi.PodSandboxFilter{LabelSelector: p.ourPods().GetLabelSelector(), State: state(isNot)}, []string{even.id}},
		"ready, with id":                {&runtimeapi.PodSandboxFilter{Id: even.id, State: state(isReady)}, nil},
		"by a label that no object has": {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelRun: "nobody"}}, nil},
	} {
		var got []string
		for _, s := range p.listPods(tc.filter) {
			got = append(got, s.GetId())
		}
		p.sameSet("pleg, containergc: a pod filter returns wrong pods", name, got, tc.want)
	}
}

func (p *probe) sameSet(breaks, name string, got, want []string) {
	p.Helper()
	slices.Sort(got)
	slices.Sort(want)
	p.must(slices.Equal(got, want), breaks, "%s: %v, not %v", name, got, want)
}

func checkContainerFilters(p *probe) {
	a, b := p.runPod(), p.runPod()
	up, waiting, other := p.launch(a, "up", p.Sleeper), p.create(a, "waiting", p.Sleeper), p.launch(b, "other", p.Completer)
	p.ended(other)
	state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	ours := p.ourContainers().GetLabelSelector()
	name := map[string]string{labelRun: p.run, labelName: "up"}
	for name, tc := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		"by label":                      {p.ourContainers(), []string{up, waiting, other}},
		"by two labels":                 {&runtimeapi.ContainerFilter{LabelSelector: name}, []string{up}},
		"by pod":                        {&runtimeapi.ContainerFilter{PodSandboxId: a.id}, []string{up, waiting}},
		"by an unknown pod":             {&runtimeapi.ContainerFilter{PodSandboxId: unknownID}, nil},
		"by id":                         {&runtimeapi.ContainerFilter{Id: other}, []string{other}},
		"by an unknown id":              {&runtimeapi.ContainerFilter{Id: unknownID}, nil},
		"by id and pod":                 {&runtimeapi.ContainerFilter{Id: other, PodSandboxId: a.id}, nil},
		"running":                       {&runtimeapi.ContainerFilter{LabelSelector: ours, State: state(running)}, []string{up}},
		"created":                       {&runtimeapi.ContainerFilter{LabelSelector: ours, State: state(created)}, []string{waiting}},
		"exited":                        {&runtimeapi.ContainerFilter{LabelSelector: ours, State: state(runtimeapi.ContainerState_CONTAINER_EXITED)}, []string{other}},
		"running in a pod":              {&runtimeapi.ContainerFilter{PodSandboxId: a.id, State: state(running)}, []string{up}},
		"by a label that no object has": {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelRun: "nobody"}}, nil},
	} {
		var got []string
		for _, c := range p.list(tc.filter) {
			got = append(got, c.GetId())
		}
		p.sameSet("pleg, podrunner: a container filter returns wrong containers", name, got, tc.want)
	}
}

// checkListAgrees compares lists and statuses. pleg uses the result that it read last, so it
// would detect a change in every pass if the two differed.
func checkListAgrees(p *probe) {
	pod := p.runPod()
	p.ended(p.launch(pod, "done", p.Failer))
	p.launch(pod, "up", p.Sleeper)
	p.create(pod, "waiting", p.Sleeper)
	const breaks = "pleg: detects a change in every pass, because list and status differ"
	for _, c := range p.list(p.ourContainers()) {
		st := p.status(c.GetId())
		p.must(c.GetPodSandboxId() == pod.id, "pleg: a container is listed with another pod", "%v", c)
		p.must(c.GetState() == st.GetState() && sameTime(c.GetCreatedAt(), st.GetCreatedAt()), breaks, "%v and %v", c, st)
		p.must(proto.Equal(c.GetMetadata(), st.GetMetadata()), breaks, "%v and %v", c, st)
		p.must(maps.Equal(c.GetLabels(), st.GetLabels()) && maps.Equal(c.GetAnnotations(), st.GetAnnotations()), breaks, "%v and %v", c, st)
		p.must(c.GetImageRef() != "", "imagegc: removes an image that is in use", "%v", c)
	}
	p.stopPod(p.runPod().id)
	for _, s := range p.listPods(p.ourPods()) {
		st := p.podStatus(s.GetId())
		p.must(s.GetState() == st.GetState() && sameTime(s.GetCreatedAt(), st.GetCreatedAt()), breaks, "%v and %v", s, st)
		p.must(proto.Equal(s.GetMetadata(), st.GetMetadata()), breaks, "%v and %v", s, st)
		p.must(maps.Equal(s.GetLabels(), st.GetLabels()) && maps.Equal(s.GetAnnotations(), st.GetAnnotations()), breaks, "%v and %v", s, st)
	}
}

// sameTime accepts timestamps of list and status that differ by less than a second: CRI-O
// sets them at two different times, and no manager compares the two.
func sameTime(a, b int64) bool {
	return time.Duration(a-b).Abs() < time.Second
}

// checkListOnce creates pods concurrently, and checks that each is listed once.
func checkListOnce(p *probe) {
	const pods = 4
	configs, made := make([]*runtimeapi.PodSandboxConfig, pods), make(chan error, pods)
	for i := range configs {
		configs[i] = p.podConfig()
	}
	ctx := p.call()
	for _, config := range configs {
		go func() {
			_, err := p.rt.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
			made <- err
		}()
	}
	var failed error
	for range configs {
		if err := <-made; err != nil {
			failed = fmt.Errorf("one of %d calls at the same time failed: %w", pods, err)
		}
	}
	p.ok(failed, "podworker: cannot create pods concurrently")
	seen := map[string]bool{}
	for _, s := range p.listPods(p.ourPods()) {
		p.must(!seen[s.GetId()], "pleg: a pod is listed twice", "%v", s)
		seen[s.GetId()] = true
	}
	p.must(len(seen) == pods, "pleg: not all pods are listed", "%d of %d", len(seen), pods)
}

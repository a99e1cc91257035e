package pleg

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

func TestNextPeriod(t *testing.T) {
	const s = time.Second
	good := standing{steady: true, trusted: true}
	for name, test := range map[string]struct {
		last, shortest, longest time.Duration
		standing                standing
		want                    time.Duration
	}{
		"it doubles":                             {s, s, 30 * s, good, 2 * s},
		"and again":                              {8 * s, s, 30 * s, good, 16 * s},
		"up to the longest":                      {16 * s, s, 30 * s, good, 30 * s},
		"and stays there":                        {30 * s, s, 30 * s, good, 30 * s},
		"exactly half":                           {15 * s, s, 30 * s, good, 30 * s},
		"without a steady stream":                {30 * s, s, 30 * s, standing{trusted: true}, s},
		"without trust":                          {30 * s, s, 30 * s, standing{steady: true}, s},
		"after a surprise":                       {30 * s, s, 30 * s, standing{steady: true, trusted: true, surprised: true}, s},
		"a longest that is the shortest":         {s, s, s, good, s},
		"a longest below the shortest":           {5 * s, 5 * s, s, good, 5 * s},
		"the longest there is does not overflow": {1 << 62, s, 1<<63 - 1, good, 1<<63 - 1},
	} {
		require.Equal(t, test.want, nextPeriod(test.last, test.shortest, test.longest, test.standing), name)
	}
}

func set(uids ...types.UID) map[types.UID]struct{} {
	s := map[types.UID]struct{}{}
	for _, uid := range uids {
		s[uid] = struct{}{}
	}
	return s
}

// A row is a relist, with what came before it.
func TestPaceFollowsTheStream(t *testing.T) {
	const s = time.Second
	type row struct {
		before    func(*pace)
		surprises map[types.UID]struct{}
		by        asked
		missed    int
		period    time.Duration
	}
	proven := func(p *pace) { p.open(); p.heard("any") }
	for name, rows := range map[string][]row{
		"no stream": {{period: s}, {period: s}},
		"a stream, from its second relist on": {
			{before: proven, period: s, surprises: set("new")}, {period: 2 * s}, {period: 4 * s},
		},
		"a break between two relists": {
			{before: proven, period: s},
			{period: 2 * s},
			{before: func(p *pace) { p.down(); proven(p) }, period: s, surprises: set("a")},
			{period: 2 * s},
		},
		"a stream that sends nothing at first": {
			{before: func(p *pace) { p.open() }, period: s},
			{period: s},
			{before: func(p *pace) { p.heard("any") }, period: 2 * s},
			{before: func(p *pace) { p.down(); p.open() }, period: s},
			{period: s},
			{before: func(p *pace) { p.heardVaguely() }, period: 2 * s},
		},
		"a hint that comes after the list was faster": {
			{before: proven, period: s},
			{period: s, surprises: set("a")},
			{before: func(p *pace) { p.heard("b"); p.heard("a") }, period: 2 * s},
		},
		"an event that says nothing after the list was faster": {
			{before: proven, period: s},
			{period: s, surprises: set("a")},
			{before: func(p *pace) { p.heardVaguely() }, period: 2 * s},
		},
		"missed hints, until one comes true": {
			{before: proven, period: s},
			{period: 2 * s},
			{period: s, surprises: set("a", "b")},
			{period: s, missed: 2},
			{period: s},
			{period: s, surprises: set("own"), by: asked{own: set("own")}},
			{period: 2 * s, surprises: set("a"), by: asked{hinted: set("a")}},
		},
		"one missed and one true": {
			{before: proven, period: s},
			{period: s, surprises: set("a", "b"), by: asked{hinted: set("b")}},
			{period: s, missed: 1},
		},
		"changes that an event may have meant": {
			{before: proven, period: s},
			{period: 2 * s, surprises: set("a"), by: asked{vague: true}},
		},
		"a failure": {
			{before: proven, period: s},
			{period: s, surprises: set("a")},
			{before: func(p *pace) { p.failed() }, period: s},
			{period: 2 * s},
		},
	} {
		p := newPace(s, 30*s)
		for i, r := range rows {
			if r.before != nil {
				r.before(&p)
			}
			require.Equal(t, r.missed, p.judge(r.surprises, r.by, p.stream()), "%s: relist %d", name, i)
			require.Equal(t, r.period, p.period, "%s: relist %d", name, i)
		}
	}
	p := newPace(s, 30*s)
	p.open()
	p.judge(nil, asked{}, p.stream())
	stream := p.stream()
	p.down()
	p.judge(set("a"), asked{}, stream)
	require.Equal(t, s, p.period, "it broke during the list")
}

func TestReopenAfter(t *testing.T) {
	for _, test := range []struct {
		failures    int
		most, least time.Duration
	}{
		{0, 100 * time.Millisecond, 50 * time.Millisecond},
		{1, 200 * time.Millisecond, 100 * time.Millisecond},
		{8, 25600 * time.Millisecond, 12800 * time.Millisecond},
		{9, 30 * time.Second, 15 * time.Second},
		{1 << 40, 30 * time.Second, 15 * time.Second},
	} {
		require.Equal(t, test.most, reopenAfter(test.failures, 0))
		require.Equal(t, test.least, reopenAfter(test.failures, 1))
	}
}

func TestPodOf(t *testing.T) {
	labels := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	mine := labels(crilabels.Agent, "me")
	for name, test := range map[string]struct {
		event    *runtimeapi.ContainerEventResponse
		selector map[string]string
		uid      types.UID
		ours     bool
	}{
		"nothing":           {nil, nil, "", true},
		"an id only":        {&runtimeapi.ContainerEventResponse{ContainerId: "1"}, mine, "", true},
		"the sandbox label": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{Labels: labels(crilabels.PodUID, "a")}}, nil, "a", true},
		"the sandbox metadata": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: "a"},
		}}, nil, "a", true},
		"an empty sandbox": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{}}, nil, "", true},
		"a container label": {&runtimeapi.ContainerEventResponse{ContainersStatuses: []*runtimeapi.ContainerStatus{
			nil, {}, {Labels: labels(crilabels.PodUID, "a")},
		}}, nil, "a", true},
		"another agent's": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Labels: labels(crilabels.PodUID, "a", crilabels.Agent, "you"),
		}}, mine, "", false},
		"ours": {&runtimeapi.ContainerEventResponse{PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Labels: labels(crilabels.PodUID, "a", crilabels.Agent, "me"),
		}}, mine, "a", true},
	} {
		uid, ours := podOf(test.event, test.selector)
		require.Equal(t, test.uid, uid, name)
		require.Equal(t, test.ours, ours, name)
	}
}

func TestMerge(t *testing.T) {
	started := Event{PodUID: "a", Type: ContainerStarted, ContainerID: "1"}
	require.Equal(t, started, merge(started, started))
	require.Equal(t, Event{PodUID: "a", Type: ContainerStarted}, merge(started, Event{PodUID: "a", Type: ContainerStarted, ContainerID: "2"}))
	require.Equal(t, Event{PodUID: "a", Type: PodSync}, merge(started, Event{PodUID: "a", Type: ContainerDied, ContainerID: "1"}))
}

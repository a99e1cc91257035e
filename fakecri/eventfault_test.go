package fakecri_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

func TestFailEvents_RejectsInvalidFaults(t *testing.T) {
	b := newBed(t)
	for name, tc := range map[string]struct {
		fault fakecri.EventFault
		want  string
	}{
		"nothing":  {fakecri.EventFault{Object: "default/a"}, "is required, not 0"},
		"two":      {fakecri.EventFault{Lose: true, Duplicate: true}, "is required, not 2"},
		"all":      {fakecri.EventFault{Lose: true, Duplicate: true, Swap: true, Cut: true, Bare: true, Delay: 1}, "not 6"},
		"negative": {fakecri.EventFault{Lose: true, Times: -1}, "must not be negative"},
		"early":    {fakecri.EventFault{Delay: -1}, "must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, b.FailEvents(fakecri.EventFault{Lose: true}, tc.fault), tc.want)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		require.Error(t, b.FailEvents(fakecri.EventFault{Lose: true}, fakecri.EventFault{}))
		b.pod("a")
		r := subscribe(t, b.Node)
		require.Len(t, r.read(), 2) // no fault was activated
		r.stop()
	})
}

func TestEventFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		faults []fakecri.EventFault
		want   []string
	}{
		"none":              {nil, []string{"a:created", "a:started", "app:created", "app:started"}},
		"the first is lost": {[]fakecri.EventFault{{Lose: true, Times: 1}}, []string{"a:started", "app:created", "app:started"}},
		"all are lost":      {[]fakecri.EventFault{{Lose: true}}, nil},
		"the events of one pod are lost": {
			[]fakecri.EventFault{{Object: "default/a", Lose: true}},
			[]string{"app:created", "app:started"},
		},
		"the events of one container come twice": {
			[]fakecri.EventFault{{Object: "default/a/app", Duplicate: true}},
			[]string{"a:created", "a:started", "app:created", "app:created", "app:started", "app:started"},
		},
		"two events are swapped": {
			[]fakecri.EventFault{{Swap: true, Times: 1}},
			[]string{"a:started", "a:created", "app:created", "app:started"},
		},
		"two events wait for a third event": {
			[]fakecri.EventFault{{Swap: true, Times: 2}},
			[]string{"app:created", "a:created", "a:started", "app:started"},
		},
		"one event is late": {
			[]fakecri.EventFault{{Delay: time.Minute, Times: 1}},
			[]string{"a:started", "app:created", "app:started", "", "a:created"},
		},
		"lost, then late": {
			[]fakecri.EventFault{{Lose: true, Times: 1}, {Delay: time.Minute, Times: 1}},
			[]string{"app:created", "app:started", "", "a:started"},
		},
		"held for ever": {[]fakecri.EventFault{{Swap: true}}, nil},
		"others' are lost": {
			[]fakecri.EventFault{{Object: "default/b", Lose: true}},
			[]string{"a:created", "a:started", "app:created", "app:started"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, realTime)
				require.NoError(t, b.FailEvents(tc.faults...))
				r := subscribe(t, b.Node)
				b.start("a", "demo/web:1")
				got := r.read()
				time.Sleep(2 * time.Minute)
				if late := r.read(); late != nil {
					got = append(append(got, ""), late...)
				}
				require.Equal(t, tc.want, got)
				r.stop()
			})
		})
	}
}

func TestCutStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		require.NoError(t, b.FailEvents(fakecri.EventFault{Object: "default/a", Cut: true, Times: 1}))
		b.pod("early") // these events have no reader and concern another pod
		sandbox := b.pod("a")
		one := subscribe(t, b.Node)
		two := subscribe(t, b.Node)
		require.Equal(t, []string{"early:created", "early:started", "a:created", "a:started"}, one.read())
		require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))
		require.Empty(t, one.read())
		requireCode(t, codes.Unavailable, <-one.done)
		requireCode(t, codes.Unavailable, <-two.done)

		// Events after the cut wait for the next reader.
		require.NoError(t, b.RemovePodSandbox(t.Context(), sandbox))
		three := subscribe(t, b.Node)
		require.Equal(t, []string{"a:deleted"}, three.read())
		three.stop()
	})
}

func TestBareEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		require.NoError(t, b.FailEvents(fakecri.EventFault{Bare: true, Times: 1}))
		r := subscribe(t, b.Node)
		id := b.pod("a")
		e := <-r.ch
		require.Equal(t, id, e.GetContainerId())
		require.Equal(t, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, e.GetContainerEventType())
		require.NotZero(t, e.GetCreatedAt())
		require.Nil(t, e.GetPodSandboxStatus())
		require.NotNil(t, (<-r.ch).GetPodSandboxStatus())
		r.stop()
	})
}

func TestEventFault_HeldEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		r := subscribe(t, b.Node)
		// ClearFaults sends the held events.
		require.NoError(t, b.FailEvents(fakecri.EventFault{Swap: true}))
		b.pod("a")
		require.Empty(t, r.read())
		b.ClearFaults("ListContainers")
		require.Empty(t, r.read())
		b.ClearFaults("GetContainerEvents")
		require.Equal(t, []string{"a:created", "a:started"}, r.read())
		b.pod("b")
		require.Len(t, r.read(), 2)
		// A restart loses the held events, but not the faults.
		require.NoError(t, b.FailEvents(fakecri.EventFault{Object: "default/c", Delay: time.Minute}))
		b.pod("c")
		b.Restart(0)
		requireCode(t, codes.Unavailable, <-r.done)
		r = subscribe(t, b.Node)
		time.Sleep(time.Hour)
		require.Empty(t, r.read())
		require.NoError(t, b.RemovePodSandbox(t.Context(), b.pod("d")))
		require.Len(t, r.read(), 4)
		require.NoError(t, b.StopPodSandbox(t.Context(), b.sandboxOf("c")))
		require.Empty(t, r.read())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"c:stopped"}, r.read())
		r.stop()
	})
}

// sandboxOf returns the id of the sandbox of a pod.
func (b *bed) sandboxOf(pod string) string {
	b.t.Helper()
	list, err := b.ListPodSandbox(b.t.Context(), &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.name": pod},
	})
	require.NoError(b.t, err)
	require.Len(b.t, list, 1)
	return list[0].GetId()
}

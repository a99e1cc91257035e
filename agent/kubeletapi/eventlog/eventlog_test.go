package eventlog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func event(name, message string) api.Event {
	return api.Event{Kind: "Pod", Namespace: "default", Name: name, Type: "Warning", Reason: "BackOff", Message: message}
}

// shown prints a log as NUMBER:NAME:MESSAGExCOUNT.
func shown(l *eventlog.Log) string {
	events, _, _ := l.After(0)
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%d:%s:%sx%d", e.Number, e.Name, e.Message, e.Count))
	}
	return strings.Join(out, " ")
}

func TestAdd_RepeatedEventsAreCountedAndMoveToTheEnd(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	l := eventlog.New(eventlog.Config{Size: 3, Window: time.Minute, Clock: clock})
	first := l.Add(event("a", "x"))
	require.Equal(t, api.Event{
		Number: 1, Time: time.Unix(1000, 0), Type: "Warning", Reason: "BackOff", Message: "x",
		Kind: "Pod", Namespace: "default", Name: "a", Count: 1,
	}, first)
	l.Add(event("b", "x"))
	l.Add(event("a", "x"))
	require.Equal(t, "2:b:xx1 3:a:xx2", shown(l))
	clock.SetTime(time.Unix(1059, 0))
	l.Add(event("a", "x"))
	require.Equal(t, "2:b:xx1 4:a:xx3", shown(l))
	clock.SetTime(time.Unix(1059+60, 0))
	l.Add(event("a", "x"))
	require.Equal(t, "2:b:xx1 4:a:xx3 5:a:xx1", shown(l), "an event with another message must be a new entry")
	l.Add(event("c", "x"))
	require.Equal(t, "4:a:xx3 5:a:xx1 6:c:xx1", shown(l), "the oldest event must be dropped")
	l.Add(event("a", "x"))
	require.Equal(t, "4:a:xx3 6:c:xx1 7:a:xx2", shown(l))
	l.Add(event("b", "x"))
	require.Equal(t, "6:c:xx1 7:a:xx2 8:b:xx1", shown(l))
}

func TestAfter_ReportsMissingEventsToSlowReaders(t *testing.T) {
	t.Parallel()
	l := eventlog.New(eventlog.Config{Size: 2})
	_, next, complete := l.After(0)
	require.Zero(t, next)
	require.True(t, complete)
	l.Add(event("a", "1"))
	l.Add(event("a", "2"))
	events, next, complete := l.After(0)
	require.Len(t, events, 2)
	require.EqualValues(t, 2, next)
	require.True(t, complete)
	l.Add(event("a", "3"))
	events, _, complete = l.After(1)
	require.Len(t, events, 2)
	require.True(t, complete, "event 1 was returned before, so the result is complete")
	_, _, complete = l.After(0)
	require.False(t, complete, "event 1 was dropped, so the result is incomplete")
	events, next, complete = l.After(99)
	require.Len(t, events, 2, "a number of another agent must return all events")
	require.EqualValues(t, 3, next)
	require.False(t, complete)
}

func TestAbout_NewestFirstOfOneObject(t *testing.T) {
	t.Parallel()
	l := eventlog.New(eventlog.Config{})
	for i := range 5 {
		l.Add(event("a", fmt.Sprint(i)))
		l.Add(event("b", fmt.Sprint(i)))
	}
	l.Add(api.Event{Kind: "Node", Name: "a"})
	var got []string
	for _, e := range l.About("Pod", "default", "a", 3) {
		got = append(got, e.Name+e.Message)
	}
	require.Equal(t, []string{"a4", "a3", "a2"}, got)
	require.Empty(t, l.About("Pod", "other", "a", 3))
	require.Len(t, l.About("Node", "", "a", 3), 1)
}

func TestLog_ReadersSeeEachEventOnceInOrder(t *testing.T) {
	t.Parallel()
	l := eventlog.New(eventlog.Config{Size: 100_000})
	var readers, writers sync.WaitGroup
	const all = 4 * 500
	for range 3 {
		readers.Go(func() {
			var at uint64
			var events []api.Event
			for at < all {
				<-l.Changed(at)
				var complete bool
				before := at
				events, at, complete = l.After(at)
				for _, e := range events {
					if e.Number <= before || !complete {
						t.Errorf("event %d follows event %d", e.Number, before)
					}
					before = e.Number
				}
			}
		})
	}
	for range 4 {
		writers.Go(func() {
			for range 500 {
				l.Add(event(fmt.Sprint(rand.IntN(50)), "m"))
			}
		})
	}
	writers.Wait()
	readers.Wait()
}

// TestLog_Model compares the log with a model that stores all events.
func TestLog_Model(t *testing.T) {
	t.Parallel()
	for range 100 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
		size := 1 + r.IntN(6)
		l := eventlog.New(eventlog.Config{Size: size, Window: 10 * time.Second, Clock: clock})
		var model []api.Event
		for n := range 200 {
			clock.SetTime(clock.Now().Add(time.Duration(r.IntN(5)) * time.Second))
			e := event(string(rune('a'+r.IntN(8))), "m")
			l.Add(e)
			e.Number, e.Time, e.Count = uint64(n+1), clock.Now(), 1
			for i, before := range slices.Backward(model) {
				if before.Name != e.Name {
					continue
				}
				if e.Time.Sub(before.Time) < 10*time.Second {
					e.Count += before.Count
					model = slices.Delete(slices.Clone(model), i, i+1)
				}
				break
			}
			model = append(model, e)
			if len(model) > size {
				model = model[1:]
			}
			got, next, _ := l.After(0)
			require.Equal(t, model, got, "seed %d, after operation %d", seed, n+1)
			require.EqualValues(t, n+1, next)
		}
	}
}

// Adding an event to a full log takes some microseconds and allocates no memory. The kubelet queues
// 1,000 events and drops further events.
func BenchmarkAdd(b *testing.B) {
	l := eventlog.New(eventlog.Config{})
	events := make([]api.Event, 5000)
	for i := range events {
		events[i] = event(fmt.Sprintf("pod-%d", i), "Back-off restarting failed container")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Add(events[i%len(events)])
	}
}

func TestAnnotatedEventf_AddsEventsAboutReferences(t *testing.T) {
	t.Parallel()
	l := eventlog.New(eventlog.Config{Clock: testingclock.NewFakePassiveClock(time.Unix(1000, 0))})
	ref := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "a", UID: "1", FieldPath: "spec.containers{web}",
	}
	l.AnnotatedEventf(ref, map[string]string{"a": "b"}, "Warning", "BackOff", "%d failures of %s", 3, "web")
	l.AnnotatedEventf(&corev1.ObjectReference{Kind: "Node", Name: "n"}, nil, "Normal", "NodeReady", "100%%")
	l.AnnotatedEventf(&corev1.Pod{}, nil, "Normal", "Ignored", "not a reference")
	l.AnnotatedEventf(nil, nil, "Normal", "Ignored", "no object")
	l.AnnotatedEventf((*corev1.ObjectReference)(nil), nil, "Normal", "Ignored", "no reference")
	events, _, _ := l.After(0)
	require.Equal(t, []api.Event{
		{
			Number: 1, Time: time.Unix(1000, 0), Type: "Warning", Reason: "BackOff", Message: "3 failures of web",
			Kind: "Pod", Namespace: "default", Name: "a", FieldPath: "spec.containers{web}", Count: 1,
		},
		{Number: 2, Time: time.Unix(1000, 0), Type: "Normal", Reason: "NodeReady", Message: "100%", Kind: "Node", Name: "n", Count: 1},
	}, events)
}

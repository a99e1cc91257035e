package pleg

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kubelet's table of events by old and new state.
func TestTransition(t *testing.T) {
	const none = EventType("")
	for _, test := range []struct {
		from, to      state
		first, second EventType
	}{
		{absent, running, ContainerStarted, none},
		{absent, exited, ContainerDied, none},
		{absent, created, ContainerChanged, none},
		{absent, unknown, ContainerChanged, none},
		{created, created, none, none},
		{created, running, ContainerStarted, none},
		{created, exited, ContainerDied, none},
		{created, unknown, ContainerChanged, none},
		{created, absent, ContainerDied, ContainerRemoved},
		{running, running, none, none},
		{running, exited, ContainerDied, none},
		{running, unknown, ContainerChanged, none},
		{running, absent, ContainerDied, ContainerRemoved},
		{exited, running, ContainerStarted, none},
		{exited, exited, none, none},
		{exited, unknown, ContainerChanged, none},
		{exited, absent, ContainerRemoved, none},
		{unknown, running, ContainerStarted, none},
		{unknown, exited, ContainerDied, none},
		{unknown, unknown, none, none},
		{unknown, absent, ContainerDied, ContainerRemoved},
	} {
		first, second := transition(test.from, test.to)
		require.Equal(t, []EventType{test.first, test.second}, []EventType{first, second}, "%d to %d", test.from, test.to)
	}
}

// made is one list entry, "pod/id", with a state.
type made struct {
	name  string
	state state
}

func listingOf(objects ...made) (all []object) {
	for _, o := range objects {
		all = append(all, object{key: key{pod: types.UID(o.name[:1]), id: o.name[2:]}, state: o.state})
	}
	return all
}

func TestDiff(t *testing.T) {
	for name, test := range map[string]struct {
		old, next []object
		want      []string
	}{
		"both empty":    {listingOf(), listingOf(), nil},
		"the same":      {listingOf(made{"a/1", running}), listingOf(made{"a/1", running}), nil},
		"another state": {listingOf(made{"a/1", running}), listingOf(made{"a/1", exited}), []string{"a/1 running exited"}},
		"another order": {
			listingOf(made{"a/1", running}, made{"a/2", exited}, made{"b/3", running}),
			listingOf(made{"b/3", exited}, made{"a/2", exited}, made{"a/1", running}),
			[]string{"b/3 running exited"},
		},
		"from nothing": {listingOf(), listingOf(made{"a/1", unknown}), []string{"a/1 absent unknown"}},
		"to nothing":   {listingOf(made{"a/1", unknown}), listingOf(), []string{"a/1 unknown absent"}},
		"one in front, one missing at the end": {
			listingOf(made{"a/1", running}, made{"b/2", running}),
			listingOf(made{"c/3", running}, made{"a/1", running}),
			[]string{"c/3 absent running", "b/2 running absent"},
		},
		"a repeated id counts once": {
			listingOf(made{"a/1", running}, made{"a/1", exited}),
			listingOf(made{"b/2", running}, made{"b/2", exited}, made{"a/1", running}, made{"a/1", exited}),
			[]string{"b/2 absent running"},
		},
		"an id in another pod is another container": {
			listingOf(made{"a/1", running}), listingOf(made{"b/1", running}),
			[]string{"b/1 absent running", "a/1 running absent"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, printed(diff(test.old, test.next)))
		})
	}
}

func printed(changes []change) (out []string) {
	names := [...]string{"absent", "created", "unknown", "running", "exited"}
	for _, c := range changes {
		out = append(out, fmt.Sprintf("%s/%s %s %s", c.object.pod, c.object.id, names[c.from], names[c.to]))
	}
	return out
}

// FuzzDiff compares diff with its definition: for each object, the states in
// both listings. Each byte defines an object, the object's state, and the
// listing that contains it.
func FuzzDiff(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{3, 2, 1})
	f.Add([]byte{0, 16, 32}, []byte{0, 17, 34})
	f.Fuzz(func(t *testing.T, old, next []byte) {
		read := func(data []byte) ([]object, map[string]state) {
			l, states := []object{}, map[string]state{}
			for _, b := range data {
				id := fmt.Sprint(b >> 2)
				if _, repeated := states[id]; repeated {
					continue
				}
				states[id] = state(1 + b%3)
				l = append(l, object{key: key{id: id}, state: states[id]})
			}
			return l, states
		}
		was, before := read(old)
		is, after := read(next)
		got := map[string][2]state{}
		for _, c := range diff(was, is) {
			require.NotContains(t, got, c.object.id)
			got[c.object.id] = [2]state{c.from, c.to}
		}
		want := map[string][2]state{}
		for id := range before {
			if before[id] != after[id] {
				want[id] = [2]state{before[id], after[id]}
			}
		}
		for id := range after {
			if before[id] != after[id] {
				want[id] = [2]state{before[id], after[id]}
			}
		}
		require.Equal(t, want, got)
	})
}

func TestDiff_StatesOfNewerRuntimesAreUnknown(t *testing.T) {
	require.Equal(t, unknown, containerState(99))
	require.Equal(t, unknown, containerState(runtimeapi.ContainerState_CONTAINER_UNKNOWN))
	require.Equal(t, unknown, sandboxState(99))
}

// kubelet 1.36 with 500 pods: 0.352 ms.
func BenchmarkDiff(b *testing.B) {
	b.Run("pods=500", func(b *testing.B) {
		listing := func() (all []object) {
			for i := range 4 * 500 {
				id := fmt.Sprintf("%064d", i) // as long as a real ID
				all = append(all, object{key: key{id, types.UID(id[:36]), i%4 == 0}, state: running})
			}
			return all
		}
		old, next := listing(), listing()
		for b.Loop() {
			if len(diff(old, next)) > 0 {
				b.Fatal("the unchanged lists differ")
			}
		}
	})
}

func TestAdvance_RecordsOnlyTheDeliveredEvent(t *testing.T) {
	old := listingOf(made{"a/1", running}, made{"a/2", exited})
	next := listingOf(made{"a/1", exited}, made{"a/3", running})
	changes := diff(old, next)
	require.Len(t, changes, 3)
	for told := range len(changes) + 1 {
		r := &record{delivered: slices.Clone(old), seen: next}
		for _, c := range changes[:told] {
			first, second := transition(c.from, c.to)
			if r.advance(c, first); second != "" {
				r.advance(c, second)
			}
		}
		require.Equal(t, printed(changes[told:]), printed(diff(r.delivered, r.seen)))
	}
}

package containergc_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc"
)

// situation generates a node and a policy from a seed.
func situation(seed uint64) containergc.Input {
	r := rand.New(rand.NewPCG(seed, 1))
	span := func() time.Duration { return time.Duration(r.IntN(100)) * time.Minute }
	maybe := func(n int) *int {
		if r.IntN(2) == 0 {
			return nil
		}
		return new(r.IntN(n) - 1)
	}
	all := pods{}
	in := containergc.Input{
		Now: now(), Pods: all, AllUnused: r.IntN(3) == 0, RetryAt: map[string]time.Time{},
		Owned: func(o containergc.Object) bool { return o.Labels["foreign"] == "" },
	}
	in.Policy = containergc.Policy{MaxPerPodContainer: maybe(4), MaxContainers: maybe(9)}
	if r.IntN(2) == 0 {
		in.Policy.MinAge = span() / 4
	}
	for p := range 1 + r.IntN(5) {
		uid := fmt.Sprint("pod", p)
		all[types.UID(uid)] = []string{"here", "gone", "ended", "evicted"}[r.IntN(4)]
		boxes := 1 + r.IntN(3)
		for n := range boxes {
			in.Snapshot.Sandboxes = append(in.Snapshot.Sandboxes, containergc.Sandbox{
				ID: fmt.Sprint(uid, "#", n), PodUID: types.UID(uid), Attempt: uint32(n), Ready: r.IntN(3) == 0,
				CreatedAt: now().Add(-span()), Labels: foreign(r),
			})
		}
		for _, name := range []string{"a", "b"} {
			for n := range r.IntN(5) {
				id := fmt.Sprint(uid, name, n)
				in.Snapshot.Containers = append(in.Snapshot.Containers, containergc.Container{
					ID: id, SandboxID: fmt.Sprint(uid, "#", r.IntN(boxes)), PodUID: types.UID(uid), Name: name,
					Attempt: uint32(n), State: runtimeapi.ContainerState(r.IntN(5)), CreatedAt: now().Add(-span()),
					FinishedAt: now().Add(-span()), Labels: foreign(r),
				})
				if r.IntN(9) == 0 {
					in.RetryAt[id] = now().Add(span() - 50*time.Minute)
				}
			}
		}
	}
	r.Shuffle(len(in.Snapshot.Containers), func(i, j int) {
		c := in.Snapshot.Containers
		c[i], c[j] = c[j], c[i]
	})
	return in
}

func foreign(r *rand.Rand) map[string]string {
	if r.IntN(8) == 0 {
		return map[string]string{"foreign": "yes"}
	}
	return nil
}

// without returns the remaining node after the execution of a plan.
func without(in containergc.Input, gone []containergc.Object) containergc.Input {
	removed := func(id string) bool {
		return slices.ContainsFunc(gone, func(o containergc.Object) bool { return o.ID == id })
	}
	in.Snapshot.Containers = slices.DeleteFunc(slices.Clone(in.Snapshot.Containers),
		func(c containergc.Container) bool { return removed(c.ID) })
	in.Snapshot.Sandboxes = slices.DeleteFunc(slices.Clone(in.Snapshot.Sandboxes),
		func(s containergc.Sandbox) bool { return removed(s.ID) })
	return in
}

// TestPlanRemovals_Invariants checks invariants of every plan, on nodes generated from seeds.
func TestPlanRemovals_Invariants(t *testing.T) {
	for seed := range uint64(3000) {
		in := situation(seed)
		plan := containergc.PlanRemovals(in)
		if !checkPlan(t, in, plan) {
			t.Fatalf("seed %d: policy %+v\n%v", seed, in.Policy, plan)
		}
	}
}

func checkPlan(t *testing.T, in containergc.Input, plan containergc.Plan) bool {
	t.Helper()
	all, ok := in.Pods.(pods)
	require.True(t, ok)
	gone := map[string]bool{}
	for _, o := range plan.Removals() {
		gone[o.ID] = true
	}
	good := true
	claim := func(holds bool, format string, args ...any) {
		t.Helper()
		if !holds {
			good = false
			t.Errorf(format, args...)
		}
	}
	claim(len(plan.Decisions) == len(in.Snapshot.Containers)+len(in.Snapshot.Sandboxes), "a decision for each object")
	kept, total := map[string]int{}, 0
	for i, c := range in.Snapshot.Containers {
		why := plan.Decisions[i].Reason
		if gone[c.ID] {
			claim(c.State != runtimeapi.ContainerState_CONTAINER_RUNNING && c.State <= 3, "running %s goes", c.ID)
			claim(c.Labels["foreign"] == "", "foreign %s goes", c.ID)
			claim(!in.RetryAt[c.ID].After(in.Now), "%s is not backed off", c.ID)
			claim(!c.FinishedAt.Add(in.Policy.MinAge).After(in.Now), "young %s goes", c.ID)
			if c.State == runtimeapi.ContainerState_CONTAINER_CREATED {
				claim(all.ShouldPodRuntimeBeRemoved(c.PodUID) || newer(in, c), "%s may be about to start", c.ID)
			}
			continue
		}
		if why == containergc.WithinLimits {
			kept[string(c.PodUID)+"/"+c.Name]++
			total++
			claim(!all.ShouldPodContentBeRemoved(c.PodUID), "%s of a gone pod stays", c.ID)
		}
		for _, other := range in.Snapshot.Containers { // kept containers are newer than removed containers
			if why == containergc.WithinLimits && gone[other.ID] && other.PodUID == c.PodUID && other.Name == c.Name {
				claim(other.Attempt < c.Attempt, "%s stays and %s goes", c.ID, other.ID)
			}
		}
	}
	if n := in.Policy.MaxPerPodContainer; n == nil || *n >= 0 {
		most := 1
		if n != nil {
			most = *n
		}
		for unit, n := range kept {
			claim(n <= most, "%s keeps %d", unit, n)
		}
	}
	if n := in.Policy.MaxContainers; n != nil && *n >= 0 {
		claim(total <= *n, "%d containers are kept", total)
	}
	for _, s := range in.Snapshot.Sandboxes {
		if gone[s.ID] {
			claim(!s.Ready && s.Labels["foreign"] == "", "sandbox %s goes", s.ID)
			for _, c := range in.Snapshot.Containers {
				claim(c.SandboxID != s.ID || gone[c.ID], "%s goes before %s", s.ID, c.ID)
			}
		}
	}
	claim(containergc.PlanRemovals(in).String() == plan.String(), "the same again")
	again := containergc.PlanRemovals(without(in, plan.Removals())).Removals()
	// A container whose removal failed still counts for MaxContainers, so another container may
	// be removed.
	retried := slices.ContainsFunc(plan.Decisions, func(d containergc.Decision) bool { return d.Reason == containergc.BackingOff })
	claim(len(again) == 0 || retried && in.Policy.MaxContainers != nil, "nothing is left to remove: %v", again)
	return good
}

// newer reports whether the container has a later attempt.
func newer(in containergc.Input, c containergc.Container) bool {
	return slices.ContainsFunc(in.Snapshot.Containers, func(o containergc.Container) bool {
		return o.PodUID == c.PodUID && o.Name == c.Name && o.Attempt > c.Attempt
	})
}

// FuzzPlan checks the same invariants for other seeds.
func FuzzPlan(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		in := situation(seed)
		checkPlan(t, in, containergc.PlanRemovals(in))
	})
}

// TestPlanRemovals_OrderOfTheListDoesNotMatter shuffles the lists of a node.
func TestPlanRemovals_OrderOfTheListDoesNotMatter(t *testing.T) {
	for seed := range uint64(200) {
		in := situation(seed)
		want := ids(containergc.PlanRemovals(in))
		slices.Reverse(in.Snapshot.Containers)
		slices.Reverse(in.Snapshot.Sandboxes)
		require.Equal(t, want, ids(containergc.PlanRemovals(in)), "seed %d", seed)
	}
}

func ids(p containergc.Plan) (all []string) {
	for _, o := range p.Removals() {
		all = append(all, o.ID)
	}
	slices.Sort(all)
	return all
}

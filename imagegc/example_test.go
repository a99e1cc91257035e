package imagegc_test

import (
	"context"
	"fmt"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

// A node's disk is nearly full. One of three images is about to be used.
func Example() {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	node, err := fakecri.New(fakecri.Config{ // a real program uses a CRI client
		Clock: clock,
		Images: []fakecri.Image{
			{Name: "demo/web:1", SizeBytes: 4 << 30}, {Name: "demo/web:2", SizeBytes: 4 << 30}, {Name: "demo/db:1", SizeBytes: 4 << 30},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := imagegc.New(imagegc.Config{
		Images: node, Runtime: node, Clock: clock,
		FS: &nodeFS{node: node}, // a real program uses imagegc.RuntimeFS
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background() // an agent calls m.Run(ctx) instead of the following
	_ = m.Detect(ctx)
	clock.Step(time.Hour)
	_ = node.FillDisk(74<<30, 0)

	release := m.Acquire("demo/web:2", "default/web", 10*time.Minute)
	defer release() // called after the container has been created
	plan, err := m.Plan(ctx)
	fmt.Printf("%vproblems: %v\n", plan, err)

	result, err := m.Collect(ctx)
	for _, r := range result.Removed {
		fmt.Println("removed", r.Image.Name(), "for", r.Reason)
	}
	fmt.Printf("from %d%% to %d%%, error %v\n", result.Before.Percent(), result.After.Percent(), err)
	// Output:
	// image filesystem: 86% of 100.0 GiB used, 14.0 GiB available
	// at or above the high threshold of 85%: 6.0 GiB must be freed to reach 80%
	// 2 of 3 images would be deleted, 8.0 GiB by their sizes
	// ACTION  IMAGE                 SIZE     UNUSED  WHY
	// delete  docker.io/demo/db:1   4.0 GiB  60m     space is needed
	// delete  docker.io/demo/web:1  4.0 GiB  60m     space is needed
	// keep    docker.io/demo/web:2  4.0 GiB  60m     leased by default/web, for another 10m
	// problems: <nil>
	// removed docker.io/demo/db:1 for space
	// removed docker.io/demo/web:1 for space
	// from 86% to 78%, error <nil>
}

// PlanDeletions is a pure function: it needs no runtime.
func ExamplePlanDeletions() {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	yesterday := now.Add(-24 * time.Hour)
	for _, v := range imagegc.PlanDeletions(now, []imagegc.Image{
		{ID: "web", FirstDetected: yesterday, LastUsed: now.Add(-time.Hour), SizeBytes: 10},
		{ID: "db", FirstDetected: yesterday, LastUsed: now, Containers: 2, SizeBytes: 10},
		{ID: "job", FirstDetected: yesterday, SizeBytes: 10},
	}, imagegc.Policy{}, imagegc.Goal{Bytes: 5}) {
		fmt.Println(v.Image.ID, v.Delete, v.Reason)
	}
	// Output:
	// job true space
	// web false not needed
	// db false in use
}

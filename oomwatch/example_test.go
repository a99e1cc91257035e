package oomwatch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// one is a source that reports one kill.
type one struct{ kill oomwatch.Kill }

func (one) Name() string                { return "one" }
func (one) Position() oomwatch.Position { return oomwatch.Position{} }

func (o one) Watch(ctx context.Context, _ oomwatch.Position, emit func(oomwatch.Observation)) error {
	emit(oomwatch.Observation{Kill: o.kill})
	<-ctx.Done()
	return nil
}

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	watcher, err := oomwatch.New(oomwatch.Config{
		Sources: []oomwatch.Source{one{oomwatch.Kill{
			Kind: oomwatch.Cgroup, Kills: 1, Victim: oomwatch.Victim{Process: "java", PID: 4711},
			VictimCgroup: "/kubepods/burstable/pod8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11/f20ebb44f6702de441b027aacb40bca460723ed11ddceaf371f719ce09f32cef",
		}}},
		Handler: func(_ context.Context, kill oomwatch.Kill) {
			fmt.Printf("%s (%d) of pod %s\n", kill.Process, kill.PID, kill.PodUID)
			cancel()
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(watcher.Run(ctx))
	// Output:
	// java (4711) of pod 8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11
	// <nil>
}

func ExampleParser() {
	var parser oomwatch.Parser
	record, err := oomwatch.ParseRecord([]byte("3,523,21094898,-;Out of memory: Killed process 119 (exe) total-vm:2111964kB, anon-rss:886644kB"))
	if err != nil {
		fmt.Println(err)
		return
	}
	parser.Feed(record, time.Time{})
	for _, kill := range parser.Flush() {
		fmt.Println(kill.String(), kill.AnonRSSBytes>>20, "MiB")
	}
	// Output: system kill of 1: "exe" (119) at the limit of / 865 MiB
}

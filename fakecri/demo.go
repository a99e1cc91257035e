package fakecri

import (
	"maps"
	"slices"
	"time"
)

// DemoImages returns the images of [DemoPrograms], in the order of their names.
// They share a layer.
func DemoImages() []Image {
	names := slices.Sorted(maps.Keys(DemoPrograms()))
	images := make([]Image, len(names))
	const baseBytes = 4 << 20
	for i, name := range names {
		own := uint64(i+1) << 20
		images[i] = Image{
			Name: name, SizeBytes: baseBytes + own,
			Layers: []Layer{{Name: "demo/base", SizeBytes: baseBytes}, {Name: name, SizeBytes: own}},
		}
	}
	return images
}

// DemoPrograms returns example programs, one of each kind, in a new map that the caller
// owns:
//
//	demo/web:1       runs for ever, exits with 0 at SIGTERM, serves HTTP on 8080
//	demo/late:1      like web, healthy after ten seconds
//	demo/rpc:1       runs for ever, serves gRPC health on 9090
//	demo/db:1        runs for ever, accepts TCP connections on 5432
//	demo/job:1       exits with 0 after half a second
//	demo/crash:1     exits with 1 after a second
//	demo/flaky:1     exits with 1 after a second twice, then runs for ever
//	demo/slow:1      runs for ever, takes three seconds to exit at SIGTERM
//	demo/stubborn:1  runs for ever, ignores SIGTERM
//	demo/hungry:1    is killed for memory after two seconds
//	demo/leaky:1     allocates 8 MiB more memory every second, until it is killed
//	demo/busy:1      uses half a core
//	demo/writer:1    writes 16 MiB and ten files every second
//	demo/chatty:1    logs a line every second
//	demo/broken:1    cannot be started
func DemoPrograms() map[string]Program {
	return map[string]Program{
		"demo/web:1":      {TermExitCode: new(int32), Log: []string{"listening on :8080"}, Ports: []Port{{Number: 8080}}},
		"demo/late:1":     {TermExitCode: new(int32), HealthyAfter: 10 * time.Second, Ports: []Port{{Number: 8080}}},
		"demo/rpc:1":      {Ports: []Port{{Number: 9090, Protocol: GRPC}}},
		"demo/db:1":       {Ports: []Port{{Number: 5432, Protocol: TCP}}},
		"demo/job:1":      {Runtime: 500 * time.Millisecond, Log: []string{"done"}},
		"demo/crash:1":    {Runtime: time.Second, ExitCode: 1, Log: []string{"about to crash"}},
		"demo/flaky:1":    {Runtime: time.Second, ExitCode: 1, Crashes: 2},
		"demo/slow:1":     {TermDelay: 3 * time.Second, TermExitCode: new(int32)},
		"demo/stubborn:1": {IgnoreTerm: true},
		"demo/hungry:1":   {Runtime: 2 * time.Second, OOMKilled: true},
		"demo/leaky:1":    {Memory: Growth{Start: 8 << 20, PerSecond: 8 << 20}},
		"demo/busy:1":     {CPUMilli: 500},
		"demo/writer:1":   {Disk: Growth{PerSecond: 16 << 20}, Inodes: Growth{PerSecond: 10}},
		"demo/chatty:1":   {Log: []string{"still here"}, LogInterval: time.Second},
		"demo/broken:1":   {StartError: `exec: "/missing": stat /missing: no such file or directory`},
	}
}

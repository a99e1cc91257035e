package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// maxPods is the largest number of pods that podsource reads from one folder.
	maxPods = 1000
	// replacedASecond is the number of pods that folder.replace replaces each second in
	// the churn scenario.
	replacedASecond = 5
	// probesIn10s is the number of HTTP probes every ten seconds in the probes scenario,
	// for any number of pods.
	probesIn10s = 200
)

// A scenario is the workload of the node during a measurement.
type scenario struct {
	name string
	// events reports whether the runtime has an event stream.
	events bool
	probes bool
	churn  bool
}

func scenarios() []scenario {
	return []scenario{
		{name: "idle/events", events: true},
		{name: "idle/no-events"},
		{name: "probes/events", events: true, probes: true},
		{name: "probes/no-events", probes: true},
		{name: "churn/events", events: true, churn: true},
		{name: "churn/no-events", churn: true},
	}
}

// folder is the folder of manifests that the agent reads.
type folder struct {
	path   string
	pods   int
	probes bool
}

// write writes the manifest of a pod. A manifest with another generation defines a
// different pod.
func (f folder) write(pod, generation int) error {
	probes := ""
	if f.probes {
		// Each pod has two probes.
		probe := fmt.Sprintf("{httpGet: {port: %d, path: /}, periodSeconds: %d}", port, max(1, 20*f.pods/probesIn10s))
		probes = fmt.Sprintf("\n    livenessProbe: %s\n    readinessProbe: %s", probe, probe)
	}
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: scratch, emptyDir: {}}]
  containers:
  - name: web
    image: %s
    env: [{name: GENERATION, value: "%d"}]
    resources: {requests: {cpu: 1m, memory: 1Mi}}
    volumeMounts: [{name: scratch, mountPath: /scratch}]%s
`, podName(pod), image, generation, probes)
	// The agent must never read an incomplete file.
	temporary := filepath.Join(f.path, ".new")
	if err := os.WriteFile(temporary, []byte(manifest), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(f.path, podName(pod)+".yaml"))
}

func podName(pod int) string { return fmt.Sprintf("p%03d", pod) }

// replace replaces pods one after the other for the given time. It returns the time at
// which it wrote each manifest.
func (f folder) replace(ctx context.Context, length time.Duration) (written []change, err error) {
	tick := time.NewTicker(time.Second / replacedASecond)
	defer tick.Stop()
	for i := range int(length.Seconds() * replacedASecond) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		at := time.Now()
		if err := f.write(i%f.pods, i+1); err != nil {
			return nil, err
		}
		written = append(written, change{podName(i % f.pods), at})
	}
	return written, nil
}

// change is the time of a change of a pod.
type change struct {
	pod string
	at  time.Time
}

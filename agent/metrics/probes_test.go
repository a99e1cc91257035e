package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/prober"
)

// run is a run of a probe that took two seconds.
func run(pod *corev1.Pod, container string, kind prober.Kind, outcome prober.Outcome) prober.Run {
	return prober.Run{
		Key: prober.Key{PodUID: pod.UID, Container: container, Kind: kind}, Pod: pod,
		Record: prober.Record{Outcome: outcome, Duration: 2 * time.Second},
	}
}

func TestProber_CountsByResult(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Prober(prober.Observer{})
	pod := newPod("web", "app")
	for _, outcome := range []prober.Outcome{prober.Succeeded, prober.Warned, prober.Failed, prober.Errored, prober.Failed} {
		o.RunFinished(run(pod, "app", prober.Liveness, outcome))
	}
	require.Equal(t, []string{
		`prober_probe_total{container="app",namespace="ns",pod="web",pod_uid="uid-web",probe_type="Liveness",result="failed"} 2`,
		`prober_probe_total{container="app",namespace="ns",pod="web",pod_uid="uid-web",probe_type="Liveness",result="successful"} 2`,
		`prober_probe_total{container="app",namespace="ns",pod="web",pod_uid="uid-web",probe_type="Liveness",result="unknown"} 1`,
	}, series(b.probes(), "prober_probe_total"))
	labels := `{container="app",namespace="ns",pod="web",probe_type="Liveness"}`
	require.InDelta(t, 4, value(t, b.probes(), "prober_probe_duration_seconds_sum"+labels), 0)
	require.InDelta(t, 2, value(t, b.probes(), "prober_probe_duration_seconds_count"+labels), 0)
	b.none("prober_")

	o.RunFinished(prober.Run{Key: prober.Key{PodUID: "nobody's"}}) // without a known pod, the series has no name
	require.Len(t, series(b.probes(), "prober_probe_total"), 3)
}

// The kubelet does not delete the series of a removed probe (kubernetes#115963).
func TestProber_SeriesAreDeletedWithTheProbe(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Prober(prober.Observer{})
	for round := range 50 {
		for n := range 10 {
			pod := newPod(fmt.Sprintf("web-%d-%d", round, n), "app", "side")
			for _, c := range []string{"app", "side"} {
				for _, kind := range []prober.Kind{prober.Startup, prober.Readiness, prober.Liveness} {
					o.RunFinished(run(pod, c, kind, prober.Succeeded))
				}
			}
			for _, c := range []string{"app", "side"} {
				for _, kind := range []prober.Kind{prober.Startup, prober.Readiness, prober.Liveness} {
					o.Removed(prober.Key{PodUID: pod.UID, Container: c, Kind: kind})
				}
			}
		}
		require.Empty(t, series(b.probes(), "prober_"))
	}
}

// In the kubelet the worker of an old pod deletes the duration series of a new pod of the same
// name, because these series have no UID.
func TestProber_DurationSeriesSurvivesOlderPodOfSameName(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Prober(prober.Observer{})
	old, young := newPod("web", "app"), newPod("web", "app")
	young.UID = "young"
	o.RunFinished(run(old, "app", prober.Readiness, prober.Succeeded))
	o.RunFinished(run(young, "app", prober.Readiness, prober.Succeeded))
	o.Removed(run(old, "app", prober.Readiness, prober.Succeeded).Key)
	o.RunFinished(run(young, "app", prober.Readiness, prober.Succeeded))
	labels := `{container="app",namespace="ns",pod="web",probe_type="Readiness"}`
	require.InDelta(t, 3, value(t, b.probes(), "prober_probe_duration_seconds_count"+labels), 0)
	require.Len(t, series(b.probes(), "prober_probe_total"), 3)
	o.Removed(run(young, "app", prober.Readiness, prober.Succeeded).Key)
	require.Empty(t, series(b.probes(), "prober_"))
}

func TestProber_DoesNotAllocate(t *testing.T) {
	b := newBed(t)
	o := b.Prober(prober.Observer{})
	r := run(newPod("web", "app"), "app", prober.Liveness, prober.Succeeded)
	require.Zero(t, testing.AllocsPerRun(100, func() { o.RunFinished(r) }))
}

// BenchmarkProbed counts runs of one probe. The kubelet finds the series of each run in a map with
// the labels as the key.
func BenchmarkProbed(b *testing.B) {
	o := newBed(b).Prober(prober.Observer{})
	r := run(newPod("web", "app"), "app", prober.Liveness, prober.Succeeded)
	b.ReportAllocs()
	for b.Loop() {
		o.RunFinished(r)
	}
}

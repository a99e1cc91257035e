package nodeloop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

func TestRanking_Words(t *testing.T) {
	t.Parallel()
	const memory, inodes = eviction.MemoryAvailable, eviction.NodeFSInodesFree
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other"}}
	report := func(s eviction.Signal, threshold, available int64) eviction.Report {
		return eviction.Report{
			Threshold:   eviction.Threshold{Signal: s, Value: eviction.Value{Quantity: threshold, Format: resource.BinarySI}},
			Observation: eviction.Observation{Signal: s, Available: available}, State: eviction.Fine, Quantity: threshold,
		}
	}
	ranking := func(change func(*Ranking)) Ranking {
		r := Ranking{
			orders: map[eviction.Signal][]eviction.Candidate{
				memory: {{Pod: other}, {Pod: pod, QOS: corev1.PodQOSBurstable, Usage: eviction.Usage{Value: 3 << 19, Time: time.Unix(1, 0)}, Request: 1 << 20}},
				inodes: {{Pod: pod}, {Pod: other}},
			},
			reports: []eviction.Report{report(memory, 100<<20, 1<<30), report(inodes, 1000, 100_000), report(memory, 50<<20, 1<<30)},
		}
		if change != nil {
			change(&r)
		}
		return r
	}
	const place = "number 2 of 2 in the eviction order for memory.available (memory.available<100Mi, memory.available<50Mi; 1Gi available)"
	for name, c := range map[string]struct {
		change func(*Ranking)
		want   string
	}{
		"nearest":      {nil, place + ": priority 0, QoS class Burstable, uses 1.5Mi and requests 1Mi"},
		"not measured": {func(r *Ranking) { r.orders[memory][1].Usage = eviction.Usage{} }, place + ": priority 0, QoS class Burstable"},
		"a count": {
			func(r *Ranking) { r.reports[1].Observation.Available = 2000 },
			"number 1 of 2 in the eviction order for nodefs.inodesFree (nodefs.inodesFree<1k; 2000 available): priority 0, QoS class ",
		},
		"critical":   {func(r *Ranking) { r.orders[memory][1].Kept = eviction.KeptCritical }, "it is never evicted because it is critical; otherwise it would be " + place},
		"useless":    {func(r *Ranking) { r.orders[memory][1].Kept = eviction.KeptUseless }, "it is not evicted now because it would free nothing; otherwise it would be " + place},
		"not ranked": {func(r *Ranking) { r.orders[memory] = r.orders[memory][:1] }, "it is not among the pods that can be evicted"},
		"unknown signal": {func(r *Ranking) {
			r.reports[0].State, r.reports[2].State = eviction.Unknown, eviction.Unknown
			r.reports = r.reports[:1]
		}, "no signal with an eviction threshold was measured"},
		"other signals": {func(r *Ranking) { delete(r.orders, memory); r.reports = r.reports[:1] }, "no signal with an eviction threshold was measured"},
		"no thresholds": {func(r *Ranking) { *r = Ranking{} }, "no eviction threshold is configured"},
	} {
		require.Equal(t, c.want, ranking(c.change).Words("u"), name)
	}
	require.Equal(t, map[eviction.Signal]int{memory: 2, inodes: 1}, ranking(nil).Places("u"))
}

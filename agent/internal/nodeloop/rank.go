package nodeloop

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
)

// Ranking is the order in which pods would be evicted, for each signal with a threshold.
type Ranking struct {
	orders  map[eviction.Signal][]eviction.Candidate
	reports []eviction.Report
}

// Ranking measures the node and ranks its pods. Callers within a second get the same figures. If
// Ranking returns an error, the order is based on the figures that could be measured.
func (l *Loop) Ranking(ctx context.Context) (Ranking, error) {
	e, err := l.evaluation.get(ctx)
	r := Ranking{orders: map[eviction.Signal][]eviction.Candidate{}, reports: e.decision.Thresholds}
	for _, t := range l.cfg.Eviction.Thresholds {
		if r.orders[t.Signal] == nil {
			r.orders[t.Signal] = eviction.Rank(t.Signal, e.decision.Next, e.facts, l.cfg.Eviction, e.decision.At)
		}
	}
	return r, wrap("measure the pods", err)
}

// Places returns a pod's position in the order of each signal. Position 1 is evicted first.
// Signals whose order does not contain the pod are omitted.
func (r Ranking) Places(pod types.UID) map[eviction.Signal]int {
	places := map[eviction.Signal]int{}
	for signal, order := range r.orders {
		if at := placeOf(order, pod); at >= 0 {
			places[signal] = at + 1
		}
	}
	return places
}

func placeOf(order []eviction.Candidate, pod types.UID) int {
	return slices.IndexFunc(order, func(c eviction.Candidate) bool { return c.Pod.UID == pod })
}

// Words describes a pod's position in the order of the signal that is nearest to its threshold.
func (r Ranking) Words(pod types.UID) string {
	if len(r.orders) == 0 {
		return "no eviction threshold is configured"
	}
	nearest := r.nearest()
	if nearest == nil {
		return "no signal with an eviction threshold was measured"
	}
	signal := nearest.Threshold.Signal
	order := r.orders[signal]
	at := placeOf(order, pod)
	if at < 0 {
		return "it is not among the pods that can be evicted"
	}
	c := order[at]
	place := fmt.Sprintf("number %d of %d in the eviction order for %s (%s; %s available)",
		at+1, len(order), signal, r.thresholds(signal), amount(signal, nearest.Observation.Available))
	switch c.Kept {
	case "":
		return place + ": " + facts(signal, c)
	case eviction.KeptCritical, eviction.KeptProtected:
		return fmt.Sprintf("it is never evicted because it is %s; otherwise it would be %s", c.Kept, place)
	default:
		return fmt.Sprintf("it is not evicted now because it %s; otherwise it would be %s", c.Kept, place)
	}
}

// nearest returns the report of the threshold with the lowest ratio of the available amount to
// the threshold. It returns nil if no signal with a threshold was measured.
func (r Ranking) nearest() (nearest *eviction.Report) {
	ratio := func(p *eviction.Report) float64 {
		return float64(p.Observation.Available) / float64(max(p.Quantity, 1))
	}
	for i := range r.reports {
		p := &r.reports[i]
		if _, ranked := r.orders[p.Threshold.Signal]; !ranked || p.State == eviction.Unknown {
			continue
		}
		if nearest == nil || ratio(p) < ratio(nearest) {
			nearest = p
		}
	}
	return nearest
}

// thresholds returns the thresholds of a signal, such as memory.available<100Mi.
func (r Ranking) thresholds(signal eviction.Signal) string {
	var texts []string
	for _, p := range r.reports {
		if p.Threshold.Signal == signal {
			texts = append(texts, fmt.Sprintf("%s<%s", signal, p.Threshold.Value))
		}
	}
	return strings.Join(texts, ", ")
}

// facts describes what determines the position of a pod.
func facts(signal eviction.Signal, c eviction.Candidate) string {
	text := fmt.Sprintf("priority %d, QoS class %s", c.Priority, c.QOS)
	if c.Usage.Known() {
		text += fmt.Sprintf(", uses %s and requests %s", amount(signal, c.Usage.Value), amount(signal, c.Request))
	}
	return text
}

// amount returns a rounded value of a signal. Inodes and process IDs are counts; all other
// signals are in bytes.
func amount(signal eviction.Signal, n int64) string {
	switch signal {
	case eviction.NodeFSInodesFree, eviction.ImageFSInodesFree, eviction.ContainerFSInodesFree, eviction.PIDAvailable:
		return fmt.Sprint(n)
	default:
	}
	const units = "KMGTPE"
	value, unit := float64(n), ""
	for i := 0; i < len(units) && value >= 1024; i++ {
		value, unit = value/1024, units[i:i+1]+"i"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + unit
}

package eviction

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletresource "k8s.io/kubernetes/pkg/api/v1/resource"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A world is one scenario: a node, the configuration of its agent, and all events of the
// node, by the time since the start.
type world struct {
	Settings    []setting
	Allocatable bool          // adds the copy of the hard memory threshold for allocatable memory
	Transition  time.Duration // transition period of node conditions
	MaxGrace    int32         // maximum grace period for soft thresholds
	NoLimits    bool          // local storage limits are ignored
	Parallel    int           // maximum concurrent evictions, in our manager only

	Layout       eviction.Layout
	LayoutErrors int                  // number of first layout requests that fail
	Figures      [numFigures]nodeStat // of the node
	Blind        []span               // times without figures
	GC           [2]collector         // of containers, and of images
	Pods         []podSpec
	Gain         bool // pods that end free their usage
	Turns        int
	Interval     time.Duration // between turns
	Gaps         bool          // our pod list contains nil entries
	Restarts     []restart
	Looks        []extraLook // our looks between the kubelet's turns

	Notes  []note         `json:"-"` // from the kubelet's side, for rules
	played *machine       // from the kubelet's side, for rules
	found  map[string]int // cache of the rules
}

// A setting is the thresholds of one signal.
type setting struct {
	Signal                     eviction.Signal
	Hard, Soft, Grace, Reclaim string
}

// A figure is a kind of measured amount of the node. Two signals can use the same figure.
type figure int

const (
	memoryFigure figure = iota
	allocatableFigure
	pidFigure
	nodeBytes
	nodeInodes
	imageBytes
	imageInodes
	numFigures
)

// figureOf returns the figure of a signal.
func (w *world) figureOf(s eviction.Signal) figure {
	switch s {
	case eviction.MemoryAvailable:
		return memoryFigure
	case eviction.AllocatableMemoryAvailable:
		return allocatableFigure
	case eviction.PIDAvailable:
		return pidFigure
	case eviction.NodeFSAvailable:
		return nodeBytes
	case eviction.NodeFSInodesFree:
		return nodeInodes
	case eviction.ContainerFSAvailable:
		if w.Layout == eviction.DedicatedImageFS {
			return imageBytes
		}
		return nodeBytes
	case eviction.ContainerFSInodesFree:
		if w.Layout == eviction.DedicatedImageFS {
			return imageInodes
		}
		return nodeInodes
	default:
		f := imageBytes
		if s == eviction.ImageFSInodesFree {
			f = imageInodes
		}
		if w.Layout == eviction.SingleFS {
			f -= imageBytes - nodeBytes
		}
		return f
	}
}

// A nodeStat is the course of a figure of the node.
type nodeStat struct {
	Capacity int64
	Levels   []level
	Period   time.Duration // between two measurements. 0: measured on request. -1: without a time
	Missing  []span
	Empty    []span // available and capacity are 0: not measured
}

// A level is the available amount from a time on, without the amounts that pods and images
// free.
type level struct {
	From      time.Duration
	Available int64
}

type span struct{ From, To time.Duration }

func in(spans []span, t time.Duration) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.From <= t && t < s.To })
}

// A collector is a garbage collection of the node.
type collector struct {
	Took  time.Duration
	Frees int64 // amount of the first run, in percent of the figure
	Fails bool
}

// An extraLook is an additional look of our manager, at a time after the beginning of a turn.
// It is skipped if the turn ends earlier.
type extraLook struct {
	Turn  int
	After time.Duration
}

// A restart of the agent is before a turn, or some time after the beginning of a kill.
type restart struct {
	Turn, Kill int // one of the two is set, counted from 1
	After      time.Duration
}

func (w *world) String() string {
	text, err := json.MarshalIndent(w, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// newWorld draws a world.
func newWorld(d *judge.Draw) *world {
	w := &world{
		Turns: d.Between(1, 12), Parallel: 1, Gain: !d.Chance(40),
		Layout:     judge.Pick(d, eviction.SingleFS, eviction.DedicatedImageFS, eviction.SplitFS),
		Transition: judge.Pick(d, 5*time.Minute, time.Minute, 25*time.Second, 10*time.Second, time.Nanosecond),
		MaxGrace:   judge.Pick[int32](d, 0, 5, 30, 100, 600, -1),
		NoLimits:   d.Chance(30),
	}
	if d.Chance(20) {
		w.Parallel = d.Between(2, 5)
	}
	if w.Layout == eviction.SingleFS && d.Chance(6) {
		w.LayoutErrors = d.Between(1, 3)
	}
	w.drawNode(d)
	w.NoLimits = w.NoLimits && len(w.Settings) > 0 // otherwise there is nothing to compare
	for i := range d.Between(0, 6) {
		w.Pods = append(w.Pods, newPod(d, i))
	}
	w.breakTies()
	judge.Shuffle(d, w.Pods)
	for i := range w.GC {
		w.GC[i] = collector{
			Took:  judge.Pick(d, 2*time.Second, time.Second, 7*time.Second, 0),
			Frees: judge.Pick[int64](d, 0, 0, 1, 30), Fails: d.Chance(10),
		}
	}
	if d.Chance(20) {
		w.GC[0].Took, w.GC[0].Frees = 0, 0
		w.GC[1].Took, w.GC[1].Frees = 0, 0
	}
	if d.Chance(15) {
		w.Blind = drawSpans(d)
	}
	if d.Chance(10) {
		w.Restarts = append(w.Restarts, restart{Turn: d.Between(2, 6)})
	}
	if d.Chance(25) {
		w.Restarts = append(w.Restarts, restart{Kill: d.Between(1, 3), After: judge.Pick(d, time.Second, 3*time.Second)})
	}
	w.Gaps = d.Chance(10)
	w.Interval = 10 * time.Second
	if d.Chance(20) {
		w.Interval = judge.Pick(d, 50*time.Second, 3*time.Second, 25*time.Second)
	}
	if len(w.Restarts) == 0 && d.Chance(50) {
		w.drawLooks(d)
	}
	if len(w.Restarts) == 0 && len(w.Pods) > 1 {
		w.drawCourse(d)
	}
	return w
}

// drawLooks draws looks at times without other events.
func (w *world) drawLooks(d *judge.Draw) {
	for range d.Between(1, 6) {
		after := time.Duration(d.Between(0, 8))*time.Second + 500*time.Millisecond
		if d.Chance(25) {
			after *= time.Duration(d.Between(2, 10))
		}
		if after%time.Second == 0 {
			after += 500 * time.Millisecond
		}
		w.Looks = append(w.Looks, extraLook{d.Between(1, w.Turns), after})
	}
	slices.SortFunc(w.Looks, func(a, b extraLook) int { return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.After, b.After)) })
	w.Looks = slices.Compact(w.Looks)
}

// breakTies gives pods different priorities if their figures might be equal: the kubelet
// sorts equal pods in random order.
func (w *world) breakTies() {
	requests := map[int64]int{}
	for i := range w.Pods {
		requests[requestOf(w.Pods[i].Pod)]++
	}
	for i := range w.Pods {
		p := &w.Pods[i]
		differs := len(p.Missing) == 0 && p.Age == 0 && p.Usage.isWhole() && (p.Later == nil || p.Later.isWhole())
		if differs && (w.Layout != eviction.SplitFS || requests[requestOf(p.Pod)] == 1) {
			continue
		}
		if p.Pod.Spec.Priority == nil {
			p.Pod.Spec.Priority = new(int32(500 + i))
		} else if *p.Pod.Spec.Priority >= 2_000_000_000 {
			*p.Pod.Spec.Priority += int32(i)
		} else if *p.Pod.Spec.Priority > 1_000_000 {
			*p.Pod.Spec.Priority -= int32(i)
		}
	}
}

func requestOf(pod *corev1.Pod) int64 {
	q := kubeletresource.GetResourceRequestQuantity(pod, corev1.ResourceEphemeralStorage)
	return q.Value()
}

// drawNode draws thresholds and figures. Few figures come near their thresholds, because the
// kubelet picks one of several due thresholds at random.
func (w *world) drawNode(d *judge.Draw) {
	signals := []eviction.Signal{
		eviction.MemoryAvailable, eviction.NodeFSAvailable, eviction.NodeFSInodesFree, eviction.PIDAvailable,
		eviction.ImageFSAvailable, eviction.ImageFSInodesFree, eviction.AllocatableMemoryAvailable,
	}
	capacities := [numFigures]int64{8 << 30, 6 << 30, 30_000, 100_000_000_000, 6_000_000, 50 << 30, 3_000_000}
	for f := range w.Figures {
		w.Figures[f] = nodeStat{Capacity: capacities[f], Levels: []level{{0, capacities[f] / 10 * 9}}}
	}
	hot := []eviction.Signal{signals[d.Int(len(signals))]}
	if d.Chance(25) {
		hot = append(hot, signals[d.Int(len(signals))])
	}
	if d.Chance(7) {
		hot = nil
	}
	w.Allocatable = d.Chance(30)
	for _, s := range signals {
		isHot := slices.Contains(hot, s)
		if isHot || d.Chance(15) && s != eviction.AllocatableMemoryAvailable {
			w.drawSetting(d, s)
		}
		if isHot {
			w.drawFigure(d, s)
		}
	}
}

func (w *world) drawSetting(d *judge.Draw, s eviction.Signal) {
	set := setting{Signal: s}
	var hard, soft, reclaim []string
	switch s {
	case eviction.NodeFSInodesFree, eviction.ImageFSInodesFree:
		hard, soft, reclaim = []string{"5%", "100k", "100000", "12.5%"}, []string{"20%", "900k", "1M"}, []string{"10%", "1k", "200000"}
	case eviction.PIDAvailable:
		hard, soft, reclaim = []string{"10%", "1k", "2000"}, []string{"30%", "10k", "1e4"}, []string{"5%", "100", "3k"}
	default:
		hard = []string{"100Mi", "10%", "1024Mi", "0.5Gi", "1e9", "500M", "5%"}
		soft, reclaim = []string{"2Gi", "2048Mi", "25%", "1.5Gi", "2500M"}, []string{"10%", "1Mi", "512Mi", "1G"}
	}
	pick := func(all []string) string { return all[d.Int(len(all))] }
	kind := d.Int(10)
	if kind < 7 && (s != eviction.AllocatableMemoryAvailable || !w.Allocatable) {
		set.Hard = pick(hard)
	}
	if kind >= 5 && s != eviction.AllocatableMemoryAvailable {
		set.Soft, set.Grace = pick(soft), judge.Pick(d, "30s", "10s", "1m30s", "5s", "11s")
	}
	if s == eviction.AllocatableMemoryAvailable && w.Allocatable {
		// The allocatable threshold is a copy of the hard memory threshold.
		if i := slices.IndexFunc(w.Settings, func(o setting) bool { return o.Signal == eviction.MemoryAvailable }); i < 0 {
			w.Settings = append(w.Settings, setting{Signal: eviction.MemoryAvailable, Hard: pick(hard)})
		}
		return
	}
	if set.Hard == "" && set.Soft == "" {
		set.Hard = pick(hard)
	}
	if d.Chance(35) {
		set.Reclaim = pick(reclaim)
	}
	w.Settings = append(w.Settings, set)
}

// drawFigure draws a figure that comes near the thresholds of its signal.
func (w *world) drawFigure(d *judge.Draw, s eviction.Signal) {
	f := &w.Figures[w.figureOf(s)]
	points := w.points(s)
	at, unit := time.Duration(0), judge.Pick(d, 5*time.Second, time.Second)
	f.Levels = nil
	n := d.Between(1, 5)
	if unit == time.Second {
		n *= 2
	}
	for range n {
		available := f.Capacity / 10 * 9
		if d.Chance(80) {
			available = points[d.Int(len(points))] + judge.Pick(d, -f.Capacity/100, -1, 0, 1, f.Capacity/200, -f.Capacity/30)
		}
		if d.Chance(6) {
			available = judge.Pick(d, 0, f.Capacity+5)
		}
		f.Levels = append(f.Levels, level{at, min(max(available, 0), f.Capacity+5)})
		at += time.Duration(d.Between(1, 20)) * unit
	}
	if d.Chance(30) {
		f.Period = judge.Pick(d, 12*time.Second, 15*time.Second, 30*time.Second, 100*time.Second, -1)
	}
	switch w.figureOf(s) { // the figures of one filesystem are measured together
	case nodeBytes, imageBytes:
		w.Figures[w.figureOf(s)+1].Period = f.Period
	case nodeInodes, imageInodes:
		w.Figures[w.figureOf(s)-1].Period = f.Period
	default: // not a filesystem
	}
	if d.Chance(12) {
		f.Missing = drawSpans(d)
	}
	if d.Chance(4) && w.percentages(s) < 2 {
		f.Empty = drawSpans(d)
	}
}

// percentages counts the thresholds of a signal that are percentages.
func (w *world) percentages(s eviction.Signal) (n int) {
	for _, t := range w.thresholds() {
		if t.Signal == s && strings.HasSuffix(t.Value, "%") {
			n++
		}
	}
	return n
}

// points returns the amounts at which a decision changes.
func (w *world) points(s eviction.Signal) []int64 {
	capacity := w.Figures[w.figureOf(s)].Capacity
	var all []int64
	for _, t := range w.thresholds() {
		if t.Signal != s {
			continue
		}
		n := amount(t.Value, capacity)
		all = append(all, n)
		if t.Reclaim != "" {
			all = append(all, n+amount(t.Reclaim, capacity))
		}
	}
	if len(all) == 0 {
		return []int64{capacity / 2}
	}
	return all
}

func drawSpans(d *judge.Draw) (all []span) {
	at := time.Duration(0)
	for range d.Between(1, 2) {
		at += time.Duration(d.Int(8)) * 5 * time.Second
		end := at + judge.Pick(d, 10*time.Second, 20*time.Second, 45*time.Second, 95*time.Second, 400*time.Second)
		all = append(all, span{at, end})
		at = end
	}
	return all
}

// A threshold is a threshold that results from the settings.
type threshold struct {
	Signal         eviction.Signal
	Value, Reclaim string
	Grace          time.Duration // 0: hard
}

// thresholds returns all thresholds, including derived ones.
func (w *world) thresholds() (all []threshold) {
	add := func(s eviction.Signal, o setting) {
		if o.Hard != "" {
			all = append(all, threshold{s, o.Hard, o.Reclaim, 0})
		}
		if o.Soft != "" {
			grace, err := time.ParseDuration(o.Grace)
			if err != nil {
				panic(err)
			}
			all = append(all, threshold{s, o.Soft, o.Reclaim, grace})
		}
	}
	for _, o := range w.Settings {
		add(o.Signal, o)
		if o.Signal == eviction.MemoryAvailable && w.Allocatable && o.Hard != "" {
			o.Soft = ""
			add(eviction.AllocatableMemoryAvailable, o)
		}
		if twin := w.twin(o.Signal); twin != "" {
			add(twin, o)
		}
	}
	return all
}

// twin returns the containerfs signal that has the thresholds and the figure of s on the
// node's layout.
func (w *world) twin(s eviction.Signal) eviction.Signal {
	bytes, inodes := eviction.NodeFSAvailable, eviction.NodeFSInodesFree
	if w.Layout == eviction.DedicatedImageFS {
		bytes, inodes = eviction.ImageFSAvailable, eviction.ImageFSInodesFree
	}
	switch s {
	case bytes:
		return eviction.ContainerFSAvailable
	case inodes:
		return eviction.ContainerFSInodesFree
	default:
		return ""
	}
}

// amount returns the amount of a value of a setting.
func amount(text string, capacity int64) int64 {
	if text[len(text)-1] == '%' {
		var percent float32
		if err := json.Unmarshal([]byte(text[:len(text)-1]), &percent); err != nil {
			panic(err)
		}
		return int64(float64(capacity) * float64(percent/100))
	}
	q := resource.MustParse(text)
	return q.Value()
}

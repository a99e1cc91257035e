package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A machine is the node of a world while one side plays it: the figures, the pods and a
// record of the actions of the side.
type machine struct {
	w     *world
	began time.Time

	mu       sync.Mutex
	changes  []change
	deaths   map[string]*death        // by pod
	attempts map[string]int           // number of kills requested, by pod
	failed   map[string]time.Duration // time of the last failed kill, by pod
	failures []failure
	kills    int          // kills that have begun
	runs     [2]int       // runs of each collector
	restarts map[int]bool // turns that follow a restart of the agent
	step     judge.Facts
	all      []judge.Facts
}

// A change is an increase of the available amount of a figure.
type change struct {
	at     time.Duration
	figure figure
	amount int64
}

// A failure is a failed attempt to kill a pod.
type failure struct {
	pod       string
	began, at time.Duration
}

// A death is the termination of a pod.
type death struct {
	began   time.Duration
	ends    time.Duration
	message string
}

func newMachine(w *world) *machine {
	return &machine{
		w: w, began: time.Now(), deaths: map[string]*death{}, attempts: map[string]int{}, failed: map[string]time.Duration{}, restarts: map[int]bool{},
	}
}

func (m *machine) now() time.Duration { return time.Since(m.began) }

// begin begins a step, after end has finished the previous one.
func (m *machine) begin() {
	m.step = judge.Facts{"time": m.now().String()}
}

// add adds a word to a fact.
func (m *machine) add(fact, word string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.step == nil {
		return
	}
	m.step[fact] = strings.TrimSpace(m.step[fact] + " " + word)
}

// set sets a fact of the step. A second value is appended as another line.
func (m *machine) set(fact, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.step == nil {
		return
	}
	if old := m.step[fact]; old != "" {
		value = old + "\n" + value
	}
	m.step[fact] = value
}

// end finishes the step.
func (m *machine) end() {
	if m.step != nil {
		m.all = append(m.all, m.step)
	}
	m.step = nil
}

// layout returns the layout. ok is false while the layout is unknown.
func (m *machine) layout() (l eviction.Layout, ok bool) {
	if len(m.all) < m.w.LayoutErrors {
		return eviction.UnknownLayout, false
	}
	return m.w.Layout, true
}

// A measurement is a figure of the node at some time.
type measurement struct {
	available, capacity int64
	time                time.Time
}

// measure returns the current measurement of a figure.
func (m *machine) measure(f figure) (measurement, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.measureAt(f, m.now(), m.changes)
}

// measureAt returns the measurement of a figure at a time, after changes.
func (m *machine) measureAt(f figure, now time.Duration, changes []change) (measurement, bool) {
	stat := &m.w.Figures[f]
	if in(stat.Missing, now) {
		return measurement{}, false
	}
	at := now
	if stat.Period > 0 {
		at = now.Truncate(stat.Period)
	}
	r := measurement{capacity: stat.Capacity, time: m.began.Add(at)}
	if stat.Period < 0 {
		r.time = time.Time{}
	}
	if in(stat.Empty, at) {
		r.capacity = 0
		return r, true
	}
	for _, l := range stat.Levels {
		if l.From <= at {
			r.available = l.Available
		}
	}
	given := int64(0)
	for _, c := range changes {
		if c.figure == f && c.at <= at {
			given += c.amount
		}
	}
	if given > 0 {
		r.available = min(r.available+given, max(r.available, stat.Capacity))
	}
	return r, true
}

func (m *machine) give(at time.Duration, f figure, amount int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = append(m.changes, change{at, f, amount})
}

// collect runs a garbage collection: 0 of containers, 1 of images. Both can run concurrently.
func (m *machine) collect(which int, beside bool) error {
	gc := &m.w.GC[which]
	if beside {
		m.mu.Lock()
		before := strings.Fields(m.step["collections"])
		m.step["collections"] = strings.Join(append(before[:len(before)-1], "containers+images"), " ")
		m.mu.Unlock()
	} else {
		m.add("collections", [...]string{"containers", "images"}[which])
	}
	<-time.After(gc.Took)
	if gc.Fails {
		return errWorld
	}
	m.mu.Lock()
	m.runs[which]++
	first := m.runs[which] == 1
	m.mu.Unlock()
	if !first {
		return nil
	}
	for _, c := range m.w.frees(which, m.now()) {
		m.give(c.at, c.figure, c.amount)
	}
	return nil
}

// frees returns what the first run of a collector frees.
func (w *world) frees(which int, at time.Duration) (all []change) {
	figures := []figure{nodeBytes, nodeInodes}
	if w.Layout == eviction.DedicatedImageFS || w.Layout == eviction.SplitFS && which == 1 {
		figures = []figure{imageBytes, imageInodes}
	}
	for _, f := range figures {
		all = append(all, change{at, f, w.Figures[f].Capacity / 100 * w.GC[which].Frees})
	}
	return all
}

type worldError struct{}

func (worldError) Error() string { return "drawn failure" }

var errWorld error = worldError{}

// pods returns the active pods.
func (m *machine) pods() (all []*corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.activeAt(m.now()) {
		all = append(all, m.pod(name).Pod)
	}
	return all
}

func (m *machine) pod(name string) *podSpec {
	i := slices.IndexFunc(m.w.Pods, func(p podSpec) bool { return p.Pod.Name == name })
	return &m.w.Pods[i]
}

// isClean reports whether a pod is completely cleaned up.
func (m *machine) isClean(uid types.UID) bool {
	p := m.pod(strings.TrimPrefix(string(uid), "uid-"))
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.deaths[p.Pod.Name]
	return d != nil && m.now() >= d.ends+p.Kill.Cleanup
}

// An attempt is one call to kill a pod.
type attempt struct {
	pod   *podSpec
	takes time.Duration // duration of the call
	err   error
}

// killTimeout is how long the kubelet waits for the termination of a pod.
func killTimeout(grace int64) time.Duration {
	return max(10*time.Second, time.Duration(grace+grace/2)*time.Second)
}

// kill starts to kill a pod. apply changes its status.
func (m *machine) kill(name string, grace int64, apply func(*corev1.PodStatus)) attempt {
	p := m.pod(name)
	m.mu.Lock()
	m.kills++
	m.attempts[name]++
	fails := m.attempts[name] <= p.Kill.Fails
	d := m.deaths[name]
	now := m.now()
	m.mu.Unlock()
	status := p.Pod.Status.DeepCopy()
	apply(status)
	m.add("kills", name+":"+reasonOf(status.Message))
	m.set("kill "+name+"/grace", fmt.Sprint(max(grace, 1)))
	m.set("kill "+name+"/status", m.statusText(status))
	if fails {
		m.failed[name] = now + p.Kill.FailsAt
		m.failures = append(m.failures, failure{name, now, now + p.Kill.FailsAt})
		return attempt{pod: p, takes: p.Kill.FailsAt, err: errWorld}
	}
	if d == nil {
		d = &death{began: now, ends: now + p.Kill.Takes, message: status.Message}
		m.mu.Lock()
		m.deaths[name] = d
		m.mu.Unlock()
		m.release(p, d)
	}
	return attempt{pod: p, takes: d.ends - now}
}

// reasonOf returns the reason of an eviction from its message: a limit, or a resource and the
// threshold.
func reasonOf(message string) string {
	rest, ok := strings.CutPrefix(message, "The node was low on resource: ")
	if !ok {
		return "limit"
	}
	what, rest, _ := strings.Cut(rest, ". Threshold quantity: ")
	text, _, _ := strings.Cut(rest, ",")
	if q, err := resource.ParseQuantity(text); err == nil {
		return what + "<" + itoa(q.Value())
	}
	return what
}

// release frees the resources of a pod that has ended.
func (m *machine) release(p *podSpec, d *death) {
	if !m.w.Gain {
		return
	}
	u, _ := p.usage(m.now())
	if u.Memory != nil {
		m.give(d.ends, memoryFigure, *u.Memory)
		m.give(d.ends, allocatableFigure, *u.Memory)
	}
	if u.Processes != nil {
		m.give(d.ends, pidFigure, *u.Processes)
	}
	clean := d.ends + p.Kill.Cleanup
	layers := nodeBytes
	if m.w.Layout == eviction.DedicatedImageFS {
		layers = imageBytes
	}
	for _, c := range u.Containers {
		m.giveDisk(clean, layers, orZero(c.Rootfs))
		m.giveDisk(clean, nodeBytes, orZero(c.Logs))
	}
	for _, v := range u.Volumes {
		if isLocal(p.volume(v.Name)) {
			m.giveDisk(clean, nodeBytes, &v.Disk)
		}
	}
}

func (m *machine) giveDisk(at time.Duration, bytes figure, d *disk) {
	m.give(at, bytes, d.Bytes)
	m.give(at, bytes+1, d.Inodes)
}

// restarting returns how long after the current kill the agent restarts, if it does.
func (m *machine) restarting() (after time.Duration, ok bool) {
	for _, r := range m.w.Restarts {
		if r.Kill != 0 && r.Kill == m.kills {
			return r.After, true
		}
	}
	return 0, false
}

// restartsBefore reports whether the agent restarts before the next turn.
func (m *machine) restartsBefore() bool {
	turn := len(m.all) + 1
	if m.restarts[turn] {
		return false
	}
	m.restarts[turn] = true
	return slices.ContainsFunc(m.w.Restarts, func(r restart) bool { return r.Turn == turn })
}

// restarted gives the new agent the statuses that the old agent has published: pods that are
// terminating have failed.
func (m *machine) restarted() {
	now := m.now()
	for name, d := range m.deaths {
		if now < d.ends {
			p := m.pod(name)
			p.Pod = p.Pod.DeepCopy()
			p.Pod.Status.Phase, p.Pod.Status.Reason, p.Pod.Status.Message = corev1.PodFailed, eviction.Reason, d.message
		}
	}
}

// statusText prints the changes that an eviction makes to a pod's status.
func (m *machine) statusText(s *corev1.PodStatus) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %q", s.Phase, s.Reason, s.Message)
	for _, c := range s.Conditions {
		since := ""
		if !c.LastTransitionTime.IsZero() {
			since = c.LastTransitionTime.Sub(m.began).String()
		}
		fmt.Fprintf(&text, " %s=%s %s %q generation %d since %s", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration, since)
	}
	return text.String()
}

// annotationsText prints annotations.
func annotationsText(all map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, key+"="+all[key])
	}
	return strings.Join(lines, "; ")
}

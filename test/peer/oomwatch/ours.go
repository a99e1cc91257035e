package oomwatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// ours is our side.
type ours struct {
	t     *testing.T
	w     *World
	began time.Time
	nth   int // number of boots

	mu    sync.Mutex
	facts judge.Facts

	log      *kmsg
	watcher  *oomwatch.Watcher
	counters chan oomwatch.Observation
	stop     func()
	limited  *limited // kept over restarts
}

func playOurs(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &ours{t: t, w: w, began: time.Now(), facts: judge.Facts{}, log: newKmsg()}
		o.limited = newLimited(o)
		o.facts["wrong configuration"] = o.limited.wrong
		if w.History {
			o.play(w.Steps[0])
			time.Sleep(time.Until(o.began.Add(first + 2*time.Second)))
		} else if w.Busy {
			time.Sleep(first)
		}
		o.run(oomwatch.Position{})
		if !w.History && !w.Busy {
			time.Sleep(time.Second) // until the watcher has found the end of an empty log
		}
		for i, s := range w.Steps {
			if i > 0 || !w.History {
				time.Sleep(time.Until(o.at(i)) - 5*time.Second)
				if s.At == 0 {
					o.restart(s.Restart)
				}
				time.Sleep(time.Until(o.at(i)))
				o.play(s)
				o.count(i, s)
				o.settle(s)
			}
			time.Sleep(time.Until(o.at(i).Add(pause / 2)))
			synctest.Wait()
			p := o.watcher.Position()
			o.limited.check()
			require.True(t, o.watcher.Sources()[0].Watching)
			all = append(all, o.take(fmt.Sprintf("%s %d", p.BootID, p.Sequence)))
		}
		o.stop()
	})
	return all
}

// take returns the facts of a step.
func (o *ours) take(position string) judge.Facts {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.facts
	f["position"] = position
	o.facts = judge.Facts{}
	return f
}

// settle records the position one second after the step's last record, if all kills of the
// step are complete by then.
func (o *ours) settle(s Step) {
	time.Sleep(time.Second)
	synctest.Wait()
	if !s.Settled {
		return
	}
	p := o.watcher.Position()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.facts["position soon"] = fmt.Sprintf("%s %d", p.BootID, p.Sequence)
}

// at returns when the records of a step are read.
func (o *ours) at(step int) time.Time {
	at := o.began.Add(first + time.Duration(step)*pause)
	if o.w.Late || o.w.Behind && step == len(o.w.Steps)-1 && step > 0 {
		at = at.Add(time.Second)
	}
	return at
}

// play writes the records of a step to the log.
func (o *ours) play(s Step) {
	var add []Record
	flush := func() {
		o.log.add(add)
		add = nil
	}
	for i, r := range s.Records {
		if i == s.At && i > 0 {
			flush()
			o.restart(s.Restart)
		}
		if r.Pause > 0 {
			flush()
			time.Sleep(r.Pause)
		}
		add = append(add, r)
	}
	flush()
	if s.At > 0 && s.At == len(s.Records) {
		o.restart(s.Restart)
	}
}

// restart applies the restart or failure of a step to the watcher.
func (o *ours) restart(kind restart) {
	if kind == none {
		return
	}
	synctest.Wait()
	switch kind {
	case fails, failsTwice:
		o.log.fail(kind == failsTwice) // the watcher retries shortly after
	case resumes, reboots:
		p := o.watcher.Position()
		o.stop()
		if kind == reboots {
			o.nth++
			o.log = newKmsg()
		}
		o.run(p)
		if kind == reboots {
			time.Sleep(time.Second) // until the watcher has found the end of an empty log
		}
	case none:
	}
	synctest.Wait()
}

// run starts a watcher.
func (o *ours) run(from oomwatch.Position) {
	began, boot := o.began, o.nth
	source, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{
		Open:      o.log.open,
		BootID:    func() (string, error) { return "boot " + strconv.Itoa(boot), nil },
		Monotonic: func() time.Duration { return time.Since(began) },
		NoVictim:  func() { o.more("nobody killed", 1) },
	})
	require.NoError(o.t, err)
	reporter, err := oomwatch.NewReporter(oomwatch.ReporterConfig{
		Events: &recorder{o.addEvent},
		Node:   &corev1.ObjectReference{Kind: "Node", Name: "node"},
		Pod:    o.pod, Burst: 1000,
	})
	require.NoError(o.t, err)
	o.counters = make(chan oomwatch.Observation)
	watcher, err := oomwatch.New(oomwatch.Config{
		Sources: []oomwatch.Source{source, counters(o.counters)}, Resume: from,
		Handler: func(ctx context.Context, k oomwatch.Kill) {
			reporter.Report(ctx, k)
			o.limited.reporter.Report(ctx, k)
			o.addKill(k)
		},
		Observer: oomwatch.Observer{
			LostRecords: func(n uint64) { o.more("lost records", int(n)) },
			SourceFailed: func(name string, err error) {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.facts["failures"] += name + ": " + err.Error() + "; "
			},
		},
	})
	require.NoError(o.t, err)
	ctx, cancel := context.WithCancel(o.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx) }()
	o.watcher, o.stop = watcher, func() {
		cancel()
		require.NoError(o.t, <-ended)
	}
}

// more increases a counting fact.
func (o *ours) more(fact string, n int) {
	if fact == "nobody killed" && o.restartsWithin() {
		return // a record that is read twice is counted twice
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	was, _ := strconv.Atoi(o.facts[fact])
	o.facts[fact] = strconv.Itoa(was + n)
}

// restartsWithin reports whether this step has a restart in its middle.
func (o *ours) restartsWithin() bool {
	for i := range slices.Backward(o.w.Steps) {
		if !time.Now().Before(o.at(i).Add(-6 * time.Second)) {
			return o.w.Steps[i].At > 0
		}
	}
	return false
}

// pod is the pod lookup of the reporter.
func (o *ours) pod(uid types.UID, id string) (*corev1.Pod, string, bool) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: podUID}}
	switch {
	case uid != podUID && id != container, o.w.Pod == nothing:
		return nil, "", false
	case o.w.Pod == nilPod:
		return nil, "main", true
	case o.w.Pod == noContainer:
		return pod, "", true
	default:
		return pod, "main", true
	}
}

// count increases the counters of cgroups as the kernel does: once for each logged kill.
func (o *ours) count(step int, s Step) {
	if !o.w.Counts || !s.isCounted() {
		return
	}
	synctest.Wait()
	rise := map[string]int{}
	for _, k := range s.Kills {
		if k.Victim != "" {
			rise[k.Victim]++
			if k.Again {
				rise[k.Victim]++
			}
		}
	}
	for _, cgroup := range slices.Sorted(maps.Keys(rise)) {
		o.counters <- oomwatch.Observation{
			Kill: oomwatch.Kill{VictimCgroup: cgroup, Kills: rise[cgroup], Time: time.Now()}, Counter: true,
			Since: o.at(step).Add(-2 * time.Second),
		}
	}
}

// isCounted reports whether the counters contain no kills besides those in the log.
func (s Step) isCounted() bool {
	for c := range s.Causes {
		if c != wholeGroup && c != noName {
			return false
		}
	}
	return s.At == 0
}

// counters is the source of counters.
type counters chan oomwatch.Observation

func (counters) Name() string                { return "counters" }
func (counters) Position() oomwatch.Position { return oomwatch.Position{} }

func (c counters) Watch(ctx context.Context, _ oomwatch.Position, emit func(oomwatch.Observation)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-c:
			emit(s)
		}
	}
}

// addKill adds a kill to the facts, and the other kills of its group.
func (o *ours) addKill(k oomwatch.Kill) {
	o.mu.Lock()
	defer o.mu.Unlock()
	victims := k.Victims
	if victims == nil {
		victims = []oomwatch.Victim{k.Victim}
	}
	for _, v := range victims {
		name := "kill " + strconv.Itoa(v.PID)
		o.twice(name+"/process", v.Process)
		o.twice(name+"/victim cgroup", k.VictimCgroup)
		o.twice(name+"/limit cgroup", k.LimitCgroup)
		o.twice(name+"/constraint", k.Constraint)
		o.twice(name+"/time", fmt.Sprint(k.Time.Sub(o.began).Round(time.Millisecond)))
		o.facts[name+"/kind"] += string(k.Kind)
		o.facts[name+"/number"] += strconv.Itoa(k.Kills)
		o.facts[name+"/figures"] += fmt.Sprint(figures{
			int(v.UID), int(v.TotalVMBytes >> 10), int(v.AnonRSSBytes >> 10), int(v.FileRSSBytes >> 10), int(v.ShmemRSSBytes >> 10),
			int(v.PageTableBytes >> 10), v.OOMScoreAdj,
		})
		o.facts[name+"/sequence"] += strconv.FormatUint(k.Sequence, 10)
		o.facts[name+"/time with lag"] = o.w.withLag(len(o.w.Steps)-1, v.PID, k.Time.Sub(o.began))
	}
}

// twice adds a fact that is compared with the kubelet's report about both the real and the
// plain log.
func (o *ours) twice(name, value string) {
	o.facts[name] += value
	o.facts[plainly+name] += value
}

// addEvent adds an event. An event of the node is compared twice.
func (o *ours) addEvent(about, message string) {
	if about == "pod event" {
		o.limited.expect()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	addEvent(o.facts, about, message)
	if about == "event" {
		addEvent(o.facts, plainly+about, message)
	}
}

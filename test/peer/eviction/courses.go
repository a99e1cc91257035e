package eviction

import (
	"time"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// drawCourse makes a few worlds ones in which several rare things come together.
func (w *world) drawCourse(d *judge.Draw) {
	switch d.Int(25) {
	case 20, 21, 22:
		w.drawSlow(d)
	case 23:
		w.drawGrowthOnDisk(d)
	case 24:
		w.drawGrowth(d)
	}
}

const gi = 1024 * mi

// drawGrowth has pods grow while they are ending, and memory shrink by as much, so that
// what they free is enough only if that was seen.
func (w *world) drawGrowth(d *judge.Draw) {
	w.Settings, w.Allocatable, w.Parallel = []setting{{Signal: eviction.MemoryAvailable, Hard: "1Gi"}}, false, d.Between(2, 3)
	w.Figures[memoryFigure] = nodeStat{Capacity: 8 * gi, Levels: []level{{0, gi - 10*mi}, {2 * time.Second, gi - 300*mi}}}
	for i := range w.Pods {
		p := &w.Pods[i]
		later := p.Usage
		p.Usage.Memory, later.Memory = new(100*mi+int64(i+1)*64), new(400*mi+int64(i+1)*64)
		p.Later, p.LaterAt, p.Arrives, p.Missing = &later, time.Second, 0, nil
		p.Kill = killing{Takes: 9 * time.Second}
	}
	w.Looks = []extraLook{{1, 3500 * time.Millisecond}, {1, 6500 * time.Millisecond}}
}

// drawGrowthOnDisk is the same of a disk that nothing but pods can free. Figures of a pod
// that has ended may come later: they do not count.
func (w *world) drawGrowthOnDisk(d *judge.Draw) {
	w.Layout, w.LayoutErrors = eviction.DedicatedImageFS, 0
	w.Settings, w.Allocatable, w.Parallel = []setting{{Signal: eviction.NodeFSAvailable, Hard: "10Gi"}}, false, d.Between(2, 3)
	w.Figures[nodeBytes] = nodeStat{Capacity: 100 * gi, Levels: []level{{0, 10*gi - 10*mi}, {2 * time.Second, 10*gi - 300*mi}}}
	w.Figures[nodeInodes].Period = 0 // measured with the bytes
	w.NoLimits = d.Chance(80)        // else their figures are asked for first
	takes := judge.Pick(d, time.Second, 9*time.Second)
	for i := range w.Pods {
		p := &w.Pods[i]
		p.Pod.Annotations, p.Pod.Spec.Priority = nil, new(int32(100+i))
		later := p.Usage
		name := p.Pod.Spec.Containers[0].Name
		logs := func(bytes int64) []containerUsage {
			return []containerUsage{{Name: name, Logs: &disk{Bytes: bytes + int64(i+1)*64, Inodes: int64(i + 1)}}}
		}
		p.Usage.Containers, later.Containers = logs(100*mi), logs(400*mi)
		p.Later, p.LaterAt, p.Arrives, p.Missing = &later, 2*time.Second, 0, nil
		p.Kill = killing{Takes: takes, Cleanup: 9 * time.Second}
	}
	w.Looks = []extraLook{{1, 3500 * time.Millisecond}, {1, 6500 * time.Millisecond}}
}

// drawSlow has a pod end slowly for want of memory, which comes back, and then processes
// run short, of which some pods have none.
func (w *world) drawSlow(d *judge.Draw) {
	w.Settings = []setting{{Signal: eviction.MemoryAvailable, Soft: "2Gi", Grace: "5s"}, {Signal: eviction.PIDAvailable, Hard: "1k"}}
	w.Allocatable, w.MaxGrace, w.Interval, w.Turns, w.Blind = false, judge.Pick[int32](d, 5, 30), 10*time.Second, 4, nil
	w.NoLimits, w.LayoutErrors = true, 0
	short := 40 * time.Second
	if w.MaxGrace == 30 {
		short = time.Minute
		w.Looks = []extraLook{{2, 5500 * time.Millisecond}, {2, 25500 * time.Millisecond}} // it is not late yet
	}
	w.Figures[memoryFigure] = nodeStat{Capacity: 8 * gi, Levels: []level{{0, gi}, {15 * time.Second, 4 * gi}}}
	w.Figures[pidFigure] = nodeStat{Capacity: 30_000, Levels: []level{{0, 20_000}, {short, 900}}}
	for i := range w.Pods {
		p := &w.Pods[i]
		p.Arrives, p.Missing, p.Later, p.LaterAt = 0, nil, nil, 0
		p.Pod.Annotations, p.Pod.Spec.Priority = nil, new(int32(100+i)) // those without processes tie
		p.Usage.Memory, p.Usage.Processes = new(200*mi+int64(i+1)*64), new(judge.Pick(d, 0, int64(i+1)))
		p.Kill = killing{Takes: 10 * time.Minute}
	}
}

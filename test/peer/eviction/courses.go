package eviction

import (
	"time"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// drawCourse turns a few worlds into worlds in which several rare things come together.
func (w *world) drawCourse(d *judge.Draw) {
	switch d.Int(25) {
	case 19:
		w.drawEnough(d)
	case 20, 21, 22:
		w.drawSlow(d)
	case 23:
		w.drawGrowthOnDisk(d)
	case 24:
		w.drawGrowth(d)
	}
}

const gi = 1024 * mi

// drawGrowth lets the memory usage of terminating pods grow, and shrinks the available memory
// by the same amount. Then the evictions free enough only for a manager that has observed the
// growth.
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

// drawGrowthOnDisk is drawGrowth for a disk on which only evictions free space. Figures of a
// pod that are measured after its end do not count.
func (w *world) drawGrowthOnDisk(d *judge.Draw) {
	w.Layout, w.LayoutErrors = eviction.DedicatedImageFS, 0
	w.Settings, w.Allocatable, w.Parallel = []setting{{Signal: eviction.NodeFSAvailable, Hard: "10Gi"}}, false, d.Between(2, 3)
	w.Figures[nodeBytes] = nodeStat{Capacity: 100 * gi, Levels: []level{{0, 10*gi - 10*mi}, {2 * time.Second, 10*gi - 300*mi}}}
	w.Figures[nodeInodes].Period = 0 // measured together with the bytes
	w.NoLimits = d.Chance(80)        // otherwise the check of limits requests pod figures first
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

// drawEnough shrinks memory while a pod terminates, by exactly the usage of one of the pods,
// or by one byte more or less. With that pod's eviction in progress, the freed memory is just
// enough.
func (w *world) drawEnough(d *judge.Draw) {
	w.Settings, w.Allocatable, w.Parallel, w.NoLimits = []setting{{Signal: eviction.MemoryAvailable, Hard: "1Gi"}}, false, d.Between(2, 3), true
	uses := func(i int) int64 { return 100*mi + int64(i+1)*64 }
	missing := uses(d.Int(len(w.Pods))) + judge.Pick[int64](d, 0, 0, 1, -1)
	w.Figures[memoryFigure] = nodeStat{Capacity: 8 * gi, Levels: []level{{0, gi - 10*mi}, {2 * time.Second, gi - missing}}}
	for i := range w.Pods {
		p := &w.Pods[i]
		p.Usage.Memory = new(uses(i))
		p.Later, p.LaterAt, p.Arrives, p.Missing, p.Age = nil, 0, 0, nil, 0
		p.Kill = killing{Takes: 9 * time.Second}
	}
	w.Looks = []extraLook{{1, 3500 * time.Millisecond}, {1, 6500 * time.Millisecond}}
}

// drawSlow lets a pod terminate slowly after an eviction for memory. Then memory is available
// again, and the node is short of processes, which some pods do not have.
func (w *world) drawSlow(d *judge.Draw) {
	w.Settings = []setting{{Signal: eviction.MemoryAvailable, Soft: "2Gi", Grace: "5s"}, {Signal: eviction.PIDAvailable, Hard: "1k"}}
	w.Allocatable, w.MaxGrace, w.Interval, w.Turns, w.Blind = false, judge.Pick[int32](d, 5, 30), 10*time.Second, 4, nil
	w.NoLimits, w.LayoutErrors = true, 0
	short := 40 * time.Second
	if w.MaxGrace == 30 {
		short = time.Minute
		w.Looks = []extraLook{{2, 5500 * time.Millisecond}, {2, 25500 * time.Millisecond}} // the pod is not overdue yet
	}
	w.Figures[memoryFigure] = nodeStat{Capacity: 8 * gi, Levels: []level{{0, gi}, {15 * time.Second, 4 * gi}}}
	w.Figures[pidFigure] = nodeStat{Capacity: 30_000, Levels: []level{{0, 20_000}, {short, 900}}}
	for i := range w.Pods {
		p := &w.Pods[i]
		p.Arrives, p.Missing, p.Later, p.LaterAt = 0, nil, nil, 0
		p.Pod.Annotations, p.Pod.Spec.Priority = nil, new(int32(100+i)) // pods without processes would be equal
		p.Usage.Memory, p.Usage.Processes = new(200*mi+int64(i+1)*64), new(judge.Pick(d, 0, int64(i+1)))
		p.Kill = killing{Takes: 10 * time.Minute}
	}
}

package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// TestScripts runs managers through the scripts in testdata. The commands:
//
//	thresholds          a config, one setting a line: hard|soft|grace|reclaim signal=amount,
//	                    and max-grace, layout, parallel
//	pod NAME            with priority, request, memory, disk, logs, inodes, limit, pids, grace, qos, critical
//	node                sets measurements: signal=available/capacity; "-" is unknown
//	evaluate [after=1s] one evaluation; prints the explanation, calls and events
//	terminated POD [err=x]  its kill returns
//	gc [err=x]          the reclaim in progress ends
//	removed POD         the pod is no longer active
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		t.Helper()
		s := &script{node: newNode(t)}
		defer s.stop()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			return s.run(t, d)
		})
	})
}

type script struct {
	node    *node
	manager *eviction.Manager
	ctx     context.Context
	cancel  context.CancelFunc
	expect  int // number of expected calls of collaborators
}

func (s *script) stop() {
	if s.cancel != nil {
		s.cancel()
		s.manager.Wait()
	}
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "thresholds":
		s.thresholds(t, d)
	case "pod":
		s.pod(t, d)
	case "node":
		s.measured(t, d)
	case "evaluate":
		return s.look(t, d)
	case "terminated":
		s.node.end(d.CmdArgs[0].Key, failure(t, d))
		return s.expected(1)
	case "gc":
		s.node.gc <- failure(t, d)
		return s.expected(1)
	case "removed":
		s.node.remove(d.CmdArgs[0].Key)
	default:
		d.Fatalf(t, "no such command")
	}
	return ""
}

func failure(t *testing.T, d *datadriven.TestData) error {
	t.Helper()
	if !d.HasArg("err") {
		return nil
	}
	var text string
	d.ScanArgs(t, "err", &text)
	return errors.New(text)
}

func (s *script) thresholds(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	in := eviction.ThresholdSettings{
		EvictionHard: settings{}, EvictionSoft: settings{}, EvictionSoftGracePeriod: settings{}, EvictionMinimumReclaim: settings{},
		EnforceNodeAllocatable: []string{},
	}
	cfg := s.node.config()
	for line := range strings.Lines(d.Input) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		signal, value, _ := strings.Cut(rest, "=")
		switch kind {
		case "hard":
			in.EvictionHard[signal] = value
		case "soft":
			in.EvictionSoft[signal] = value
		case "grace":
			in.EvictionSoftGracePeriod[signal] = value
		case "reclaim":
			in.EvictionMinimumReclaim[signal] = value
		case "max-grace":
			_, err := fmt.Sscan(rest, &cfg.Policy.MaxPodGracePeriodSeconds)
			require.NoError(t, err)
		case "parallel":
			_, err := fmt.Sscan(rest, &cfg.Policy.MaxParallelEvictions)
			require.NoError(t, err)
		case "layout":
			s.node.layout = eviction.Layout(rest)
		case "gc":
			cfg.ImageGC, cfg.ContainerGC = s.node, s.node
		case "qos-first":
			cfg.Policy.Rank = eviction.QoSFirst
		}
	}
	var err error
	cfg.Policy.Thresholds, err = eviction.ParseThresholds(in)
	require.NoError(t, err)
	cfg.Observer.Evicting = func(*corev1.Pod, eviction.Eviction) { s.expect++ }
	s.manager = newManager(t, cfg)
	s.ctx, s.cancel = context.WithCancel(t.Context())
}

func (s *script) pod(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	pod := newPod(d.CmdArgs[0].Key)
	stats := eviction.PodStats{UID: pod.UID, Containers: []eviction.ContainerStats{{Name: "main"}}}
	for _, arg := range d.CmdArgs[1:] {
		c := &stats.Containers[0]
		switch arg.Key {
		case "priority":
			var n int32
			arg.Scan(t, 0, &n)
			priority(n)(pod)
		case "request":
			asks(corev1.ResourceMemory, arg.Vals[0])(pod)
		case "memory":
			stats.Memory = used(bytesOf(t, arg.Vals[0]))
			c.Memory = stats.Memory
		case "disk":
			c.Rootfs.Bytes = used(bytesOf(t, arg.Vals[0]))
			c.Logs.Bytes.Time = epoch()
		case "logs":
			c.Logs.Bytes = used(bytesOf(t, arg.Vals[0]))
		case "inodes":
			c.Rootfs.Inodes = used(bytesOf(t, arg.Vals[0]))
		case "pids":
			stats.Processes = used(bytesOf(t, arg.Vals[0]))
		case "grace":
			grace(bytesOf(t, arg.Vals[0]))(pod)
		case "qos":
			qos(corev1.PodQOSClass(arg.Vals[0]))(pod)
		case "critical":
			priority(2_000_000_000)(pod)
		case "limit":
			limited(corev1.ResourceEphemeralStorage, arg.Vals[0])(pod)
		}
	}
	s.node.add(pod, stats)
}

func (s *script) measured(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	for field := range strings.FieldsSeq(d.Input) {
		signal, amounts, _ := strings.Cut(field, "=")
		if amounts == "-" {
			delete(s.node.obs, eviction.Signal(signal))
			continue
		}
		available, capacity, _ := strings.Cut(amounts, "/")
		s.node.saw(eviction.Signal(signal), bytesOf(t, available), bytesOf(t, capacity))
	}
}

func (s *script) look(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	after := "1s"
	d.MaybeScanArgs(t, "after", &after)
	wait, err := time.ParseDuration(after)
	require.NoError(t, err)
	s.node.clock.Step(wait)
	s.expect = 0
	decision, err := s.manager.Evaluate(s.ctx)
	require.NoError(t, err)
	s.expect += len(decision.Reclaim)
	out := decision.String()
	for _, line := range s.node.take() {
		out += "! " + line + "\n"
	}
	if s.expect > 0 {
		for _, call := range s.node.waitCalls(s.expect) {
			out += "> " + call + "\n"
		}
	}
	return out
}

// expected waits until n lines about calls of collaborators are recorded, and returns the lines.
func (s *script) expected(n int) string {
	for {
		s.node.mu.Lock()
		got := slices.Clone(s.node.lines)
		s.node.mu.Unlock()
		if len(got) >= n {
			s.node.take()
			return "! " + strings.Join(got, "\n! ") + "\n"
		}
		yield()
	}
}

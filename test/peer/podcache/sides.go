package podcache

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

//go:linkname getIfNewerThan k8s.io/kubernetes/pkg/kubelet/container.(*cache).getIfNewerThan
func getIfNewerThan(cache unsafe.Pointer, uid types.UID, t time.Time) unsafe.Pointer

// A side is a cache with its waiters.
type side struct {
	get func(uid string) string
	// set reports whether the cache accepted the status.
	set     func(o Operation) bool
	observe func(o Operation)
	delete  func(o Operation)
	global  func(o Operation)
	// wait returns the status that a waiter received, and whether it was received before ctx
	// was cancelled.
	wait  func(ctx context.Context, uid string, t time.Time) (string, bool)
	fresh func(uid string, second int) bool
	// told adds the reports that only our cache has.
	told func(f judge.Facts, step int)

	waiters []*waiter
}

type waiter struct {
	pod    string
	result string
	done   chan string
	cancel context.CancelFunc
}

const gaveUp = "gave up: "

// text describes what a reader received.
func text(uid, name string, err error) string {
	if err != nil {
		return fmt.Sprintf("%q of %s and %v", name, uid, err)
	}
	return fmt.Sprintf("%q of %s", name, uid)
}

type inspectError struct{}

func (inspectError) Error() string { return "broken" }

// play plays a world on one side.
func (s *side) play(w *World) (all []judge.Facts) {
	ctx, cancel := context.WithCancel(context.Background())
	defer synctest.Wait()
	defer cancel()
	last := 0
	for i, o := range w.Operations {
		f := judge.Facts{}
		switch o.Kind {
		case set:
			f["accepted"] = fmt.Sprint(s.set(o))
		case observed:
			s.observe(o)
		case deleted:
			s.delete(o)
		case global:
			s.global(o)
		case wait:
			s.begin(ctx, o)
		case giveUp:
			s.waiters[o.Who].cancel()
		}
		last = max(last, o.At)
		synctest.Wait()
		s.facts(f, last)
		s.told(f, i)
		all = append(all, f)
	}
	return all
}

func (s *side) begin(ctx context.Context, o Operation) {
	ctx, cancel := context.WithCancel(ctx)
	w := &waiter{pod: o.Pod, done: make(chan string, 1), cancel: cancel}
	s.waiters = append(s.waiters, w)
	go func() {
		got, ok := s.wait(ctx, o.Pod, at(o.At))
		if !ok {
			got = gaveUp + got
		}
		w.done <- got
	}()
}

func (s *side) facts(f judge.Facts, last int) {
	for _, uid := range uids() {
		f["pod "+uid+"/status"] = s.get(uid)
		f["pod "+uid+"/as new as"] = freshness(last, func(second int) bool { return s.fresh(uid, second) })
	}
	for i, w := range s.waiters {
		select {
		case w.result = <-w.done:
		default:
		}
		f[fmt.Sprintf("pod %s/waiter %d", w.pod, i)] = cmp.Or(w.result, "waits")
	}
}

// freshness returns the newest time for which the status is new enough, as fresh reports.
func freshness(last int, fresh func(int) bool) string {
	for second := last; second > 0; second-- {
		if fresh(second) {
			return fmt.Sprint(second)
		}
	}
	return "nothing"
}

func playKubelet(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	w.model = modelOf(w)
	synctest.Test(t, func(*testing.T) {
		c := kubecontainer.NewCache()
		read := func(uid string, s *kubecontainer.PodStatus, err error) string {
			if s == nil {
				s = &kubecontainer.PodStatus{ID: types.UID(uid)}
			}
			return text(string(s.ID), s.Name, err)
		}
		s := side{
			get: func(uid string) string {
				s, err := c.Get(types.UID(uid))
				return read(uid, s, err)
			},
			set: func(o Operation) bool {
				var status *kubecontainer.PodStatus
				if o.Name != "" {
					status = &kubecontainer.PodStatus{ID: types.UID(o.Pod), Name: o.Name}
				}
				return c.Set(types.UID(o.Pod), status, o.err(), at(o.At))
			},
			observe: func(o Operation) { c.SetObservedTime(types.UID(o.Pod), at(o.At)) },
			delete:  func(o Operation) { c.Delete(types.UID(o.Pod)) },
			global: func(o Operation) {
				if !o.Except {
					c.UpdateTime(at(o.At))
				}
			},
			wait: func(_ context.Context, uid string, t time.Time) (string, bool) {
				s, err := c.GetNewerThan(types.UID(uid), t)
				return read(uid, s, err), true
			},
			fresh: func(uid string, second int) bool {
				// The kubelet requires a newer time, ours an equal or newer time. Facts about
				// waiters show this difference; here it would appear in each step.
				return getIfNewerThan(reflect.ValueOf(c).UnsafePointer(), types.UID(uid), at(second).Add(-1)) != nil
			},
		}
		s.told = func(f judge.Facts, step int) { maps.Copy(f, w.model[step].told) }
		all = s.play(w)
		c.UpdateTime(at(1_000_000)) // releases all waiters
	})
	return all
}

func (o Operation) err() error {
	if o.Fails {
		return inspectError{}
	}
	return nil
}

func playOurs(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		c := podcache.New()
		var blocked atomic.Int32
		count := func() { blocked.Add(1) }
		c.OnWait(count)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		read := func(s *podcache.Status, err error) string { return text(string(s.UID), s.Name, err) }
		s := side{
			get: func(uid string) string { return read(c.Get(types.UID(uid))) },
			set: func(o Operation) bool {
				var status *podcache.Status
				if o.Name != "" {
					status = &podcache.Status{UID: types.UID(o.Pod), Name: o.Name}
				}
				return c.Set(types.UID(o.Pod), status, o.err(), at(o.At))
			},
			observe: func(o Operation) { c.SetObservedTime(types.UID(o.Pod), at(o.At)) },
			delete:  func(o Operation) { c.Delete(types.UID(o.Pod), at(o.At)) },
			global: func(o Operation) {
				var except []types.UID
				if o.Except {
					except = append(except, types.UID(o.Pod))
				}
				c.UpdateTime(at(o.At), except...)
			},
			wait: func(ctx context.Context, uid string, t time.Time) (string, bool) {
				s, err := c.GetNewerThan(ctx, types.UID(uid), t)
				if s == nil {
					return err.Error(), false
				}
				return read(s, err), true
			},
			fresh: func(uid string, second int) bool {
				c.OnWait(nil) // further waiters are not counted
				defer c.OnWait(count)
				s, _ := c.GetNewerThan(ended, types.UID(uid), at(second))
				return s != nil
			},
		}
		s.told = func(f judge.Facts, _ int) {
			var all []string
			for _, s := range c.Statuses() {
				all = append(all, text(string(s.UID), s.Name, nil))
			}
			f["told statuses"], f["told waiting"] = strings.Join(all, ", "), fmt.Sprint(c.Waiting(), blocked.Load())
		}
		all = s.play(w)
	})
	return all
}

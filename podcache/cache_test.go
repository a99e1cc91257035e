package podcache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/podcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errInspect = errors.New("inspect failed")

// at returns a time n seconds after the start of the test.
func at(n int) time.Time { return time.Unix(1_000_000+int64(n), 0) }

func status(uid types.UID) *podcache.Status {
	return &podcache.Status{UID: uid, Name: "n-" + string(uid)}
}

// fresh reports whether a read newer than when returns without waiting.
func fresh(t *testing.T, c *podcache.Cache, uid types.UID, when time.Time) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := c.GetNewerThan(ctx, uid, when)
	if errors.Is(err, context.Canceled) {
		require.Nil(t, s)
		return false
	}
	require.NotNil(t, s)
	require.Equal(t, uid, s.UID)
	return true
}

func TestGet_ReturnsWhatWasSet(t *testing.T) {
	c := podcache.New()
	one := status("one")
	require.True(t, c.Set("one", one, nil, at(1)))
	require.True(t, c.Set("failing", one, errInspect, at(1)))
	require.True(t, c.Set("empty", nil, errInspect, at(1)))

	got, err := c.Get("one")
	require.NoError(t, err)
	require.Same(t, one, got)
	got, err = c.Get("failing")
	require.ErrorIs(t, err, errInspect)
	require.Same(t, one, got)
	got, err = c.Get("empty")
	require.ErrorIs(t, err, errInspect)
	require.Equal(t, &podcache.Status{UID: "empty"}, got)
	got, err = c.Get("missing")
	require.NoError(t, err)
	require.Equal(t, &podcache.Status{UID: "missing"}, got)
}

func TestFreshness(t *testing.T) {
	for name, test := range map[string]struct {
		do    func(*podcache.Cache)
		fresh bool // whether a read of pod "a" at second 10 is fresh
	}{
		"empty cache": {func(*podcache.Cache) {}, false},
		"a global time before the requested time":        {func(c *podcache.Cache) { c.UpdateTime(at(9)) }, false},
		"a global time equal to the requested time":      {func(c *podcache.Cache) { c.UpdateTime(at(10)) }, true},
		"a write before the requested time":              {func(c *podcache.Cache) { c.Set("a", nil, nil, at(9)) }, false},
		"a write at the requested time":                  {func(c *podcache.Cache) { c.Set("a", nil, nil, at(10)) }, true},
		"an error counts as a write":                     {func(c *podcache.Cache) { c.Set("a", nil, errInspect, at(11)) }, true},
		"a write to another pod":                         {func(c *podcache.Cache) { c.Set("b", nil, nil, at(11)) }, false},
		"seen absent":                                    {func(c *podcache.Cache) { c.SetObservedTime("a", at(10)) }, true},
		"deleted":                                        {func(c *podcache.Cache) { c.Delete("a", at(10)) }, true},
		"excluded from the first global time":            {func(c *podcache.Cache) { c.UpdateTime(at(11), "a") }, false},
		"another pod is excluded":                        {func(c *podcache.Cache) { c.UpdateTime(at(11), "b") }, true},
		"the global time does not go back":               {func(c *podcache.Cache) { c.UpdateTime(at(10)); c.UpdateTime(at(9), "a") }, true},
		"an older observation takes nothing":             {func(c *podcache.Cache) { c.SetObservedTime("a", at(10)); c.SetObservedTime("a", at(9)) }, true},
		"excluded, earlier global time still applies":    {func(c *podcache.Cache) { c.UpdateTime(at(10)); c.UpdateTime(at(11), "a") }, true},
		"excluded, then a global time without exclusion": {func(c *podcache.Cache) { c.UpdateTime(at(11), "a"); c.UpdateTime(at(11)) }, true},
		"excluded, then written with an older time": {func(c *podcache.Cache) {
			c.UpdateTime(at(11), "a")
			c.Set("a", nil, nil, at(9))
		}, false},
		"excluded, then written with a newer time": {func(c *podcache.Cache) {
			c.UpdateTime(at(11), "a")
			c.Set("a", nil, nil, at(11))
		}, true},
		"excluded, then observed unchanged": {func(c *podcache.Cache) {
			c.UpdateTime(at(11), "a")
			c.SetObservedTime("a", at(11))
		}, true},
		"excluded, then deleted": {func(c *podcache.Cache) {
			c.UpdateTime(at(11), "a")
			c.Delete("a", at(11))
		}, true},
		"excluded twice": {func(c *podcache.Cache) {
			c.UpdateTime(at(8), "a")
			c.UpdateTime(at(11), "a", "a")
			c.Set("a", nil, nil, at(9))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := podcache.New()
			test.do(c)
			require.Equal(t, test.fresh, fresh(t, c, "a", at(10)))
		})
	}
}

func TestGetNewerThan_WaitsBeforeTheFirstWrite(t *testing.T) {
	c := podcache.New()
	known := func(want bool, uid types.UID, why ...any) {
		t.Helper()
		require.Equal(t, want, fresh(t, c, uid, time.Time{}), why...)
		require.Equal(t, want, c.Known(uid), why...)
	}
	known(false, "a")
	c.Set("a", nil, nil, time.Time{})
	known(true, "a")
	known(false, "b")
	c.UpdateTime(at(1), "c")
	known(true, "b")
	known(false, "c", "listed, but not looked at yet")
}

func TestSet_OlderNeverReplacesNewer(t *testing.T) {
	c, old, recent := podcache.New(), status("a"), status("a")
	require.True(t, c.Set("a", recent, nil, at(5)))
	require.False(t, c.Set("a", old, nil, at(4)))
	c.Delete("a", at(4))
	got, _ := c.Get("a")
	require.Same(t, recent, got)

	require.True(t, c.Set("a", old, nil, at(5)), "a write with an equal time must be accepted")
	c.SetObservedTime("a", at(7))
	require.False(t, c.Set("a", recent, nil, at(6)), "the write is older than a later observation that the pod was unchanged")
	c.UpdateTime(at(9))
	require.False(t, c.Set("a", recent, nil, at(8)), "the write is older than the global time")
	require.False(t, c.Set("b", recent, nil, at(8)), "the write is older than the global time, at which the pod was absent")
	c.UpdateTime(at(12), "a")
	require.True(t, c.Set("a", recent, nil, at(10)), "a write to an excluded pod may be older than the global time")
	require.False(t, c.Set("a", old, nil, at(9)))
}

func TestDelete_TimeIsKeptUntilTheGlobalTimeReachesIt(t *testing.T) {
	c := podcache.New()
	c.Set("a", status("a"), nil, at(1))
	c.Delete("a", at(5))
	c.SetObservedTime("never", at(5))
	require.False(t, c.Set("a", status("a"), nil, at(4)), "the write is older than the removal")
	require.False(t, c.Set("never", status("never"), nil, at(4)))
	got, err := c.Get("a")
	require.NoError(t, err)
	require.Equal(t, &podcache.Status{UID: "a"}, got)
	require.Empty(t, c.Statuses())

	c.UpdateTime(at(4))
	entries, absent, _ := c.Memory()
	require.Equal(t, []int{2, 2}, []int{entries, absent})
	c.UpdateTime(at(5))
	entries, absent, _ = c.Memory()
	require.Equal(t, []int{0, 0}, []int{entries, absent})
	require.True(t, fresh(t, c, "a", at(5)))
}

func TestCache_MemoryDoesNotGrowWithChanges(t *testing.T) {
	c := podcache.New()
	for i := range 100 { // exclude all, write "a" and "b", and delete "b"
		c.UpdateTime(at(2*i), "a", "b", "ghost")
		c.Set("a", status("a"), nil, at(2*i))
		c.Set("b", status("b"), nil, at(2*i))
		c.Delete("b", at(2*i+1))
	}
	entries, absent, held := c.Memory()
	require.LessOrEqual(t, entries, 3)
	require.LessOrEqual(t, absent, 3)
	require.LessOrEqual(t, held, 3)
	c.UpdateTime(at(1000))
	entries, absent, held = c.Memory()
	require.Equal(t, []int{1, 0, 0}, []int{entries, absent, held})
}

func TestStatuses_Sorted(t *testing.T) {
	c := podcache.New()
	for _, uid := range []types.UID{"c", "a", "b"} {
		c.Set(uid, status(uid), nil, at(1))
	}
	c.UpdateTime(at(2), "held")
	all := c.Statuses()
	require.Len(t, all, 3)
	require.Equal(t, []types.UID{"a", "b", "c"}, []types.UID{all[0].UID, all[1].UID, all[2].UID})
}

func TestWaiting(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(*podcache.Cache)
		known         bool
	}{
		"a write wakes":        {nil, func(c *podcache.Cache) { c.Set("a", status("a"), nil, at(10)) }, true},
		"an observation wakes": {nil, func(c *podcache.Cache) { c.SetObservedTime("a", at(10)) }, false},
		"a deletion wakes":     {nil, func(c *podcache.Cache) { c.Delete("a", at(10)) }, false},
		"the global time wakes": {nil, func(c *podcache.Cache) {
			c.UpdateTime(at(10))
		}, false},
		"an observation of a known pod wakes": {
			func(c *podcache.Cache) { c.Set("a", status("a"), nil, at(1)) },
			func(c *podcache.Cache) { c.SetObservedTime("a", at(11)) }, true,
		},
		"the end of a hold wakes those the global time has passed": {
			func(c *podcache.Cache) { c.UpdateTime(at(9), "a") },
			func(c *podcache.Cache) {
				c.UpdateTime(at(12), "a")
				c.Set("a", status("a"), nil, at(9))
				c.Set("a", status("a"), nil, at(12))
			}, true,
		},
		"a hold that is not renewed wakes": {
			func(c *podcache.Cache) { c.UpdateTime(at(9), "a") },
			func(c *podcache.Cache) {
				c.UpdateTime(at(12), "a")
				c.UpdateTime(at(13))
			}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := podcache.New()
			if test.before != nil {
				test.before(c)
			}
			synctest.Test(t, func(t *testing.T) {
				done := make(chan *podcache.Status, 1)
				go func() {
					s, err := c.GetNewerThan(t.Context(), "a", at(10))
					if err != nil {
						t.Error(err)
					}
					done <- s
				}()
				synctest.Wait()
				c.Set("b", nil, nil, at(20))
				c.UpdateTime(at(9), "a")
				c.SetObservedTime("a", at(9))
				synctest.Wait()
				require.Empty(t, done)
				test.after(c)
				s := <-done
				require.Equal(t, types.UID("a"), s.UID)
				require.Equal(t, test.known, s.Name != "")
			})
			require.Zero(t, c.Waiters())
		})
	}
}

func TestGetNewerThan_LeavesNoWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := podcache.New()
		ctx, cancel := context.WithCancelCause(t.Context())
		const pods, each = 10, 5
		errs := make(chan error, pods*each)
		for p := range pods {
			for i := range each {
				go func() {
					_, err := c.GetNewerThan(ctx, types.UID(rune('a'+p)), at(100*i))
					errs <- err
				}()
			}
		}
		synctest.Wait()
		require.Equal(t, pods*each, c.Waiters())
		c.UpdateTime(at(0), "a") // wakes one waiter of each pod, except the excluded pod
		synctest.Wait()
		require.Equal(t, pods*(each-1)+1, c.Waiters())
		for range pods - 1 {
			require.NoError(t, <-errs)
		}
		cancel(errInspect)
		for range pods*(each-1) + 1 {
			require.ErrorIs(t, <-errs, errInspect)
		}
		require.Zero(t, c.Waiters())
	})
}

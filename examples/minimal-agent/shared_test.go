package main

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShared_AsksOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := newShared(func(context.Context) (int, error) {
			asked++
			time.Sleep(5 * time.Second)
			return asked, errors.New("in part")
		})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				n, err := s.get(t.Context())
				require.Equal(t, 1, n)
				require.EqualError(t, err, "in part")
			})
		}
		all.Wait()
		time.Sleep(sharedAge)
		n, _ := s.get(t.Context())
		require.Equal(t, 2, n, "it is too old")
	})
}

func TestShared_WhoGivesUpKeepsNobodyFromAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared(func(ctx context.Context) (string, error) {
			select {
			case <-time.After(3 * time.Second):
				return "answer", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := s.get(impatient)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		all.Go(func() {
			_, err := s.get(impatient)
			require.ErrorIs(t, err, context.DeadlineExceeded, "one that waits for another gives up, too")
		})
		answer, err := s.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, "answer", answer)
		all.Wait()
	})
}

// TestShared_PagesAskTheRuntimeTogether counts the runtime's calls while pages are asked
// for as fast as they answer.
func TestShared_PagesAskTheRuntimeTogether(t *testing.T) {
	t.Parallel()
	a := start(t)
	await(t, "the pods to have figures", func() bool { return podOf(a.status(t), "web").Usage != nil })
	calls := func() int {
		_, metrics := a.get(t, "/metrics")
		m := regexp.MustCompile(`kubelet_runtime_operations_total\{operation_type="list_podsandbox_stats"\} (\d+)`).FindStringSubmatch(metrics)
		require.NotNil(t, m)
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		return n
	}
	const each = 20
	before, began := calls(), time.Now()
	for range each {
		for _, path := range []string{"/status", "/stats/summary", "/explain/default/web"} {
			code, body := a.get(t, path)
			require.Equal(t, http.StatusOK, code, body)
		}
	}
	require.LessOrEqual(t, calls()-before, 1+int(time.Since(began)/sharedAge), "calls for %d requests", 3*each)
}

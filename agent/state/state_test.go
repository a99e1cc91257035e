package state_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/agent/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stores runs a test with each implementation of the contract.
func stores(t *testing.T, run func(t *testing.T, store state.Store)) {
	t.Helper()
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		run(t, state.Files(t.TempDir()+"/not/yet"))
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		run(t, state.Memory())
	})
}

func TestStore_ReplacesValues(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store state.Store) {
		t.Helper()
		_, err := store.Get(t.Context(), "pods/a/ending")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, "pods/a/ending")
		require.NoError(t, store.Delete(t.Context(), "pods/a/ending"))
		for _, text := range []string{"first", "", "a longer one\x00\xff"} {
			value := []byte(text)
			require.NoError(t, store.Put(t.Context(), "pods/a/ending", value))
			clear(value)
			got, err := store.Get(t.Context(), "pods/a/ending")
			require.NoError(t, err)
			require.Equal(t, text, string(got))
			clear(got)
			again, err := store.Get(t.Context(), "pods/a/ending")
			require.NoError(t, err)
			require.Equal(t, text, string(again), "the store must copy the value")
		}
		for range 2 {
			require.NoError(t, store.Delete(t.Context(), "pods/a/ending"))
			_, err = store.Get(t.Context(), "pods/a/ending")
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
	})
}

func TestStore_ListsKeys(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store state.Store) {
		t.Helper()
		list := func(prefix string) string {
			keys, err := store.Keys(t.Context(), prefix)
			require.NoError(t, err, prefix)
			return strings.Join(keys, " ")
		}
		require.Empty(t, list(""))
		for _, key := range []string{"statuses/b.json", "statuses/a.json", "statuses.old", "pods/a/ending", "pods/ab/ending", "top"} {
			require.NoError(t, store.Put(t.Context(), key, nil))
		}
		for prefix, want := range map[string]string{
			"":          "pods/a/ending pods/ab/ending statuses.old statuses/a.json statuses/b.json top",
			"statuses":  "statuses.old statuses/a.json statuses/b.json",
			"statuses/": "statuses/a.json statuses/b.json", "statuses/a": "statuses/a.json",
			"pods/a": "pods/a/ending pods/ab/ending", "pods/a/": "pods/a/ending", "pods/a/e": "pods/a/ending",
			"to": "top", "top": "top", "none": "", "none/at/all/": "",
		} {
			require.Equal(t, want, list(prefix), "prefix %q", prefix)
		}
		require.NoError(t, store.Delete(t.Context(), "pods/a/ending"))
		require.Equal(t, "pods/ab/ending", list("pods/"))
	})
}

func TestStore_RefusesBadKeys(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store state.Store) {
		t.Helper()
		for _, key := range []string{
			"", ".", "..", "/", "/etc/passwd", "../up", "a/../../up", "a/./b", "a//b", "a/", "a b", "a\\b", "a\x00", "a\nb", "ä", "\xff", "*", "x.new", "x.new/y", "a!b",
		} {
			_, err := store.Get(t.Context(), key)
			require.ErrorContains(t, err, fmt.Sprintf("%q", key))
			require.NotErrorIs(t, err, fs.ErrNotExist, key)
			require.ErrorContains(t, store.Put(t.Context(), key, nil), fmt.Sprintf("%q", key))
			require.ErrorContains(t, store.Delete(t.Context(), key), fmt.Sprintf("%q", key))
		}
		for _, prefix := range []string{"/", "/etc/", "../", "a/../b", "a//", "a b", "ä/"} {
			_, err := store.Keys(t.Context(), prefix)
			require.ErrorContains(t, err, fmt.Sprintf("%q", prefix))
		}
		for _, key := range []string{"a", "..b", ".json", "...json", "x.json.new.json", "A-Z_~%2F$&+=:@09"} {
			require.NoError(t, store.Put(t.Context(), key, nil), key)
		}
	})
}

func TestStore_KeyCannotBeAFolder(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store state.Store) {
		t.Helper()
		require.NoError(t, store.Put(t.Context(), "a/b", []byte("1")))
		require.ErrorContains(t, store.Put(t.Context(), "a", nil), "put a")
		require.ErrorContains(t, store.Put(t.Context(), "a/b/c", nil), "put a/b/c")
		require.NoError(t, store.Delete(t.Context(), "a"), "deleting a missing value must succeed")
		_, err := store.Get(t.Context(), "a")
		require.Error(t, err)
		got, err := store.Get(t.Context(), "a/b")
		require.NoError(t, err)
		require.Equal(t, "1", string(got))
	})
}

// Concurrent readers must only see complete values.
func TestStore_ConcurrentUse(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store state.Store) {
		t.Helper()
		var wg sync.WaitGroup
		errs := make(chan error, 8)
		for i := range cap(errs) {
			wg.Go(func() { errs <- churn(t.Context(), store, i) })
		}
		wg.Wait()
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
		keys, err := store.Keys(t.Context(), "")
		require.NoError(t, err)
		for _, key := range keys {
			require.Contains(t, []string{"p/shared/x", "p/shared/y"}, key)
		}
	})
}

// churn repeatedly writes, reads, lists and deletes the values of two keys.
func churn(ctx context.Context, store state.Store, i int) error {
	for n := range 30 {
		key := []string{"p/shared/x", "p/shared/y"}[(i+n)%2]
		if err := store.Put(ctx, key, fmt.Appendf(nil, "%0*d", 1000*(1+i), i)); err != nil {
			return err
		}
		value, err := store.Get(ctx, key)
		if err == nil && len(value)%1000 != 0 {
			return fmt.Errorf("read %d bytes", len(value))
		}
		if _, err := store.Keys(ctx, "p/shared/"); err != nil {
			return err
		}
		if err := store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

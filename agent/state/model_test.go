package state_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/state"
)

// Files and Memory must return the same results for any sequence of calls, including
// reopening Files after a crash.
func TestFiles_AgainstMemory(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "a/b", "a/b/c", "p/1/x", "p/1/y", "p/2/x", "p/10/x", "s/1.json", "s/2.json"}
	prefixes := []string{"", "a", "p/", "p/1", "p/1/", "s/", "s/1", "none/"}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			dir := t.TempDir()
			files, memory := state.Files(dir), state.Memory()
			for step := range 200 {
				key := keys[random.IntN(len(keys))]
				value := fmt.Appendf(nil, "%d", step)
				switch random.IntN(7) {
				case 0, 1:
					alike(t, files.Put(t.Context(), key, value), memory.Put(t.Context(), key, value), "put", key)
				case 2:
					alike(t, files.PutUnsynced(t.Context(), key, value), memory.Put(t.Context(), key, value), "put", key)
				case 3:
					alike(t, files.Delete(t.Context(), key), memory.Delete(t.Context(), key), "delete", key)
				case 4:
					crash(t, dir, key, value)
					files = state.Files(dir)
				case 5:
					prefix := prefixes[random.IntN(len(prefixes))]
					got, err := files.Keys(t.Context(), prefix)
					require.NoError(t, err)
					want, err := memory.Keys(t.Context(), prefix)
					require.NoError(t, err)
					require.ElementsMatch(t, want, got, "prefix %q", prefix)
				default:
					want, errWant := memory.Get(t.Context(), key)
					got, err := files.Get(t.Context(), key)
					alike(t, err, errWant, "get", key)
					require.Equal(t, string(want), string(got))
				}
			}
		})
	}
}

// alike requires that both stores succeed or both fail. Deleting a key below a value is an
// error in Files only.
func alike(t *testing.T, files, memory error, what, key string) {
	t.Helper()
	if memory == nil && what == "delete" && errors.Is(files, syscall.ENOTDIR) {
		return
	}
	require.Equal(t, memory == nil, files == nil, "%s %s: %v, %v", what, key, files, memory)
}

// crash leaves an incomplete value, if its directory exists.
func crash(t *testing.T, dir, key string, value []byte) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(key))
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return
	}
	require.NoError(t, os.WriteFile(path+".new", value[:len(value)/2], 0o600))
}

// No key may refer to a path outside of the directory, and both stores must accept the same
// keys.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{"a", "a/b", "../x", "/x", "a//b", "a/../b", "..", "a\x00", "x.new", "a b", "%2F"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		above := t.TempDir()
		files, memory := state.Files(filepath.Join(above, "root")), state.Memory()
		if len(key) > 200 {
			return // the name of a file may be too long
		}
		err := memory.Put(t.Context(), key, []byte("x"))
		alike(t, files.Put(t.Context(), key, []byte("x")), err, "put", key)
		entries, listErr := os.ReadDir(above)
		require.NoError(t, listErr)
		if err != nil {
			require.Empty(t, entries)
			return
		}
		require.Len(t, entries, 1)
		require.Equal(t, "root", entries[0].Name())
		keys, err := files.Keys(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, []string{key}, keys)
		require.NoError(t, files.Delete(t.Context(), key))
	})
}

package volumes_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// layout lists a volume's top directory: names, and targets of links.
func layout(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		line := e.Name()
		if e.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			line += " -> " + target
		}
		all = append(all, line)
	}
	sort.Strings(all)
	return all
}

func TestLayout(t *testing.T) {
	n := newNode(t, nil)
	s := configMap("cm")
	s.ConfigMap.Items = []corev1.KeyToPath{{Key: "a", Path: "a"}, {Key: "b", Path: "deep/b"}, {Key: "bin", Path: "deep/er/bin"}}
	p := podOf(vol("v", s))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	first := []string{"..2026_11_21_08_00_00.5", "..data -> ..2026_11_21_08_00_00.5", "a -> ..data/a", "deep -> ..data/deep"}
	require.Equal(t, first, layout(t, paths["v"]))

	n.clock.Step(time.Second)
	require.NoError(t, n.Refresh(t.Context(), p))
	_, err = n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, first, layout(t, paths["v"]), "without a change, nothing must be written")

	n.objects.set("cm", map[string]string{"a": "new", "b": "2", "bin": "x"})
	require.NoError(t, n.Refresh(t.Context(), p))
	require.Equal(t, []string{"..2026_11_21_08_00_01.5", "..data -> ..2026_11_21_08_00_01.5", "a -> ..data/a", "deep -> ..data/deep"}, layout(t, paths["v"]))
	require.Equal(t, map[string]string{"a": "-rw-r--r-- new", "deep/b": "-rw-r--r-- 2", "deep/er/bin": "-rw-r--r-- x"}, in(t, paths["v"]))
}

func TestRefresh(t *testing.T) {
	n := newNode(t, nil)
	p := podOf(vol("v", configMap("cm")), vol("e", emptyDir()))
	require.NoError(t, n.Refresh(t.Context(), p))
	uids, err := n.Pods()
	require.NoError(t, err)
	require.Empty(t, uids, "a volume that is not mounted must not be updated")

	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	for i, data := range []map[string]string{{"a": "1"}, {"b": "1", "c": "2"}, {}, {"a": "1"}} {
		n.objects.set("cm", data)
		require.NoError(t, n.Refresh(t.Context(), p), "a second write in the same nanosecond must succeed")
		want := map[string]string{}
		for name, text := range data {
			want[name] = "-rw-r--r-- " + text
		}
		require.Equal(t, want, in(t, paths["v"]), "version %d", i)
		require.Len(t, layout(t, paths["v"]), len(data)+2, "no file of an earlier version must be left")
	}

	n.objects.configMaps = nil
	require.ErrorContains(t, n.Refresh(t.Context(), p), `failed for volume "v" : configmaps "cm" not found`)
	require.Equal(t, map[string]string{"a": "-rw-r--r-- 1"}, in(t, paths["v"]), "the previous version must still be visible")
}

// The next write repairs the remains of any crash.
func TestWriter_AfterACrash(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string) error{
		"while a version was written": func(_ *testing.T, dir string) error {
			return errors.Join(os.Mkdir(dir+"/..2026_11_21_07_00_00.1", 0o700), os.WriteFile(dir+"/..2026_11_21_07_00_00.1/a", nil, 0o600))
		},
		"before the link was moved": func(_ *testing.T, dir string) error { return os.Symlink("..2026_11_21_07_00_00.1", dir+"/..data_tmp") },
		"before the links were made": func(_ *testing.T, dir string) error {
			return errors.Join(os.Remove(dir+"/a"), os.Symlink("..data/old", dir+"/old"))
		},
		"link leads nowhere": func(_ *testing.T, dir string) error {
			return errors.Join(os.Remove(dir+"/..data"), os.Symlink("..gone", dir+"/..data"))
		},
		"link leads out": func(_ *testing.T, dir string) error {
			return errors.Join(os.Remove(dir+"/..data"), os.Symlink("../../../../..", dir+"/..data"))
		},
		"link is a folder": func(_ *testing.T, dir string) error {
			return errors.Join(os.Remove(dir+"/a"), os.MkdirAll(dir+"/a/b", 0o700))
		},
		"a file was written":  func(_ *testing.T, dir string) error { return os.WriteFile(dir+"/..data/a", []byte("else"), 0o644) },
		"a mode was changed":  func(_ *testing.T, dir string) error { return os.Chmod(dir+"/..data/a", 0o777) },
		"a file was added":    func(_ *testing.T, dir string) error { return os.WriteFile(dir+"/..data/else", nil, 0o644) },
		"a file was removed":  func(_ *testing.T, dir string) error { return os.Remove(dir + "/..data/a") },
		"before the mode was": func(_ *testing.T, dir string) error { return os.Chmod(dir, 0o600) },
		"a file is a link now": func(_ *testing.T, dir string) error {
			return errors.Join(os.Remove(dir+"/..data/a"), os.Symlink("/etc/passwd", dir+"/..data/a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, nil)
			p := podOf(vol("v", configMap("cm")))
			paths, err := n.Mount(t.Context(), p)
			require.NoError(t, err)
			require.NoError(t, spoil(t, paths["v"]))
			n.clock.Step(time.Second)
			_, err = n.Mount(t.Context(), p)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"a": "-rw-r--r-- 1", "b": "-rw-r--r-- 2", "bin": "-rw-r--r-- \x00\x01"}, in(t, paths["v"]))
			require.Len(t, layout(t, paths["v"]), 5)
			info, err := os.Stat(paths["v"])
			require.NoError(t, err)
			require.Equal(t, fs.ModeDir|0o777, info.Mode())
		})
	}
}

// A reader that opens ..data sees one version, for any number of concurrent writes, and a
// reader that follows a file's link finds the file.
func TestWriter_ReadersNeverSeeAMix(t *testing.T) {
	const versions, keys = 100, 8
	n := newNode(t, nil)
	version := func(i int) map[string]string {
		data := map[string]string{}
		for k := range keys {
			data[fmt.Sprint("key", k)] = fmt.Sprint(i)
		}
		return data
	}
	n.objects.set("cm", version(0))
	p := podOf(vol("v", configMap("cm")))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	done := make(chan struct{})
	errs := make(chan error, 2)
	var readers sync.WaitGroup
	for range cap(errs) {
		readers.Go(func() { errs <- watch(paths["v"], keys, done) })
	}
	for i := 1; i <= versions; i++ {
		n.objects.set("cm", version(i))
		n.clock.Step(time.Second)
		require.NoError(t, n.Refresh(t.Context(), p))
	}
	close(done)
	readers.Wait()
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	require.Equal(t, "-rw-r--r-- "+fmt.Sprint(versions), in(t, paths["v"])["key0"])
}

// watch reads a volume repeatedly until done is closed.
func watch(dir string, keys int, done chan struct{}) error {
	for seen := 0; ; {
		select {
		case <-done:
			if seen == 0 {
				return errors.New("the reader never got to read a whole version")
			}
			return nil
		default:
		}
		if _, err := os.Lstat(filepath.Join(dir, "..data")); err != nil {
			return fmt.Errorf("there is a moment without data: %w", err)
		}
		root, err := os.OpenRoot(filepath.Join(dir, "..data"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the link was replaced between reading it and opening its target
		} else if err != nil {
			return err
		}
		values := map[string]bool{}
		for k := range keys {
			data, err := root.ReadFile(fmt.Sprint("key", k))
			if errors.Is(err, fs.ErrNotExist) {
				values = nil // this version is being removed after a newer one
				break
			}
			values[string(data)] = true
		}
		root.Close()
		if len(values) > 1 {
			return fmt.Errorf("a mix of versions: %v", values)
		}
		seen += len(values)
	}
}

// Any sequence of contents ends with the last contents only.
func TestRandomContents(t *testing.T) {
	seed := uint64(20261121)
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := newNode(t, nil)
	s := configMap("cm")
	names := []string{"a", "b/c", "b/d", "b/e/f", "g", "..h", "i/../j", "b"}
	n.objects.set("cm", map[string]string{})
	p := podOf(vol("v", s))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	want := map[string]string{}
	for range 200 {
		data, items := map[string]string{}, []corev1.KeyToPath{}
		next := map[string]string{}
		for i, name := range names {
			if random.IntN(3) > 0 {
				continue
			}
			key, text := fmt.Sprint("k", i), fmt.Sprint(random.IntN(3))
			data[key] = text
			items = append(items, corev1.KeyToPath{Key: key, Path: name})
			next[filepath.Clean(name)] = "-rw-r--r-- " + text
		}
		n.objects.set("cm", data)
		s.ConfigMap.Items = items
		n.clock.Step(time.Duration(random.IntN(2)))
		err := n.Refresh(t.Context(), p)
		_, hidden := next["..h"]
		_, file := next["b"]
		folder := next["b/c"]+next["b/d"]+next["b/e/f"] != ""
		require.Equal(t, hidden || file && folder, err != nil, "%v: %v", next, err)
		if err == nil {
			want = next
		}
		require.Equal(t, want, in(t, paths["v"]))
		tops := map[string]bool{}
		for name := range want {
			top, _, _ := strings.Cut(name, "/")
			tops[top] = true
		}
		require.Len(t, layout(t, paths["v"]), len(tops)+2)
	}
}

// A volume that cannot be updated does not prevent the update of other volumes.
func TestRefresh_ContinuesAfterAnError(t *testing.T) {
	n := newNode(t, nil)
	n.objects.set("other", map[string]string{"x": "1"})
	p := podOf(vol("gone", configMap("cm")), vol("unread", configMap("no")), vol("v", configMap("other")))
	before := p.DeepCopy()
	_, err := n.Mount(t.Context(), p)
	require.EqualError(t, err, `MountVolume.SetUp failed for volume "unread" : configmaps "no" not found`)
	n.objects.set("no", map[string]string{"y": "1"})
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err, "the next attempt must continue after the completed steps")

	n.objects.set("other", map[string]string{"x": "2"})
	delete(n.objects.configMaps, "cm")
	delete(n.objects.configMaps, "no")
	err = n.Refresh(t.Context(), p)
	require.EqualError(t, err, `MountVolume.SetUp failed for volume "gone" : configmaps "cm" not found
MountVolume.SetUp failed for volume "unread" : configmaps "no" not found`)
	require.Equal(t, map[string]string{"x": "-rw-r--r-- 2"}, in(t, paths["v"]))
	require.Equal(t, before, p, "the pod must not be modified")
}

// The downward API follows the pod's labels.
func TestRefresh_ChangedLabels(t *testing.T) {
	n := newNode(t, nil)
	p := podOf(vol("d", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
	}}}))
	paths, err := n.Mount(t.Context(), p)
	require.NoError(t, err)
	p.Labels = map[string]string{"z": "1", "a": "2"}
	require.NoError(t, n.Refresh(t.Context(), p))
	require.Equal(t, map[string]string{"labels": "-rw-r--r-- a=\"2\"\nz=\"1\""}, in(t, paths["d"]))
}

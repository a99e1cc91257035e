package volumes_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// For any paths in a manifest, the files are in the volume or the pod is rejected, and the
// cleanup removes exactly these files.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{"a", "a/b", "../x", "..data", "..data/x", "a/../../b", "/etc/x", ".", "", "a//b", "a\x00", "a\\b", ".hidden", "...", "a/..", "./a"} {
		f.Add(path, "other")
		f.Add("other", path)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		top := t.TempDir()
		root := filepath.Join(top, "root")
		n, err := volumes.New(volumes.Config{
			Root: root, Mounter: &mounter{}, Clock: testingclock.NewFakePassiveClock(testTime()),
			Objects: &objects{configMaps: map[string]*corev1.ConfigMap{"cm": {Data: map[string]string{"k": "v"}}}},
		})
		require.NoError(t, err)
		s := configMap("cm")
		s.ConfigMap.Items = []corev1.KeyToPath{{Key: "k", Path: first}, {Key: "k", Path: second}}
		p := podOf(vol("v", s))
		paths, _, err := n.Mount(t.Context(), p)
		files := 0
		require.NoError(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files++
				require.True(t, strings.HasPrefix(path, filepath.Join(root, "pods/uid-1/volumes/kubernetes.io~configmap/v/..")), path)
			}
			return err
		}))
		if err != nil {
			require.Zero(t, files)
		} else {
			for _, asked := range []string{first, second} {
				data, err := os.ReadFile(filepath.Join(paths["v"], asked))
				require.NoError(t, err)
				require.Equal(t, "v", string(data))
			}
		}
		require.NoError(t, n.Unmount(t.Context(), p.UID))
		left, err := os.ReadDir(filepath.Join(root, "pods"))
		require.True(t, os.IsNotExist(err) || err == nil && len(left) == 0)
	})
}

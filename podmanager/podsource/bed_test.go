package podsource_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// yamlOf returns a minimal valid manifest.
func yamlOf(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  containers: [{name: c, image: \"" + image + "\"}]\n"
}

// bed is a directory, a Directory that reads it, and the recorded problems.
type bed struct {
	*podsource.Directory
	t     *testing.T
	path  string
	clock *testingclock.FakeClock
	told  []string // problems that appeared ("+ problem") or were resolved ("- problem")
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, path: t.TempDir(), clock: testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	var err error
	b.Directory, err = podsource.NewDirectory(podsource.DirectoryConfig{
		Path: b.path, NodeName: "Node1", Clock: b.clock,
		Observer: podsource.Observer{ProblemsChanged: func(added, gone []podsource.Problem) {
			for _, p := range added {
				b.told = append(b.told, "+ "+b.short(p))
			}
			for _, p := range gone {
				b.told = append(b.told, "- "+b.short(p))
			}
		}},
	})
	require.NoError(t, err)
	return b
}

func (b *bed) short(p podsource.Problem) string {
	return strings.ReplaceAll(p.Error(), b.path+string(filepath.Separator), "")
}

func (b *bed) write(name, text string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.path, name), []byte(text), 0o600))
}

func (b *bed) remove(name string) {
	b.t.Helper()
	require.NoError(b.t, os.Remove(filepath.Join(b.path, name)))
}

func (b *bed) load() podsource.Result {
	b.t.Helper()
	res, err := b.Load(b.t.Context())
	require.NoError(b.t, err)
	return res
}

// requirePods calls Load and requires exactly these pods, each as "name image".
func (b *bed) requirePods(want ...string) podsource.Result {
	b.t.Helper()
	res := b.load()
	got := []string{}
	for _, pod := range res.Pods {
		got = append(got, pod.Name+" "+pod.Spec.Containers[0].Image)
	}
	require.Equal(b.t, append([]string{}, want...), got)
	return res
}

// requireTold requires that exactly these problems appeared (+) or were resolved (-) since
// the last call.
func (b *bed) requireTold(want ...string) {
	b.t.Helper()
	require.Equal(b.t, want, b.told)
	b.told = nil
}

package imageref_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestParse reads each line of testdata/names as a reference.
func TestParse(t *testing.T) {
	replacer := strings.NewReplacer("HEX64", strings.Repeat("ab", 32), "LONG", strings.Repeat("l", 256), "TAG128", strings.Repeat("t", 128), "TAG129", strings.Repeat("t", 129), "EMPTY", "")
	back := strings.NewReplacer(strings.Repeat("ab", 32), "HEX64", strings.Repeat("t", 128), "TAG128")
	datadriven.RunTest(t, "testdata/names", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			line = strings.TrimSuffix(line, "\n")
			image := replacer.Replace(line)
			n, err := imageref.Parse(image)
			if err != nil {
				fmt.Fprintf(&b, "%s: error: %v\n", line, err)
				continue
			}
			fmt.Fprintln(&b, back.Replace(fmt.Sprintf("%s: repository=%s tag=%s digest=%s full=%s", image, n.Repository, n.Tag, n.Digest, n.WithDefaultTag())))
		}
		return b.String()
	})
}

func FuzzParse(f *testing.F) {
	for _, image := range []string{
		"busybox", "docker.io/library/busybox:1", "localhost:5000/a/b@sha256:" + strings.Repeat("0", 64), "[::1]:5000/a", "a--b__c.d/e:T", "index.docker.io/a", "",
	} {
		f.Add(image)
	}
	f.Fuzz(func(t *testing.T, image string) {
		n, err := imageref.Parse(image)
		if err != nil {
			return
		}
		n = n.WithDefaultTag()
		again, err := imageref.Parse(n.String())
		require.NoError(t, err, "parsing the full form of %q", image)
		require.Equal(t, n.String(), again.String(), "the full form of %q", image)
		require.Equal(t, again, again.WithDefaultTag())
		_, path, _ := strings.Cut(n.Repository, "/")
		require.LessOrEqual(t, len(path), 255)
	})
}

package podsource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImagesThatCanBePulled(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("0a", 32)
	for _, ref := range []string{
		"a", "nginx", "nginx:1.29", "library/nginx:latest", "docker.io/library/nginx", "quay.io/a/b/c:v1_2.3-x",
		"localhost/a", "localhost:5000/a:1", "registry:5000/a", "10.0.0.1:5000/a/b", "[::1]:5000/a", "Registry/a",
		"a@sha256:" + digest, "a:1@sha256:" + digest, "sha256:" + digest, "a-b--c.d_e__f", "a:" + strings.Repeat("x", 128),
	} {
		require.Empty(t, checkImage(ref), ref)
	}
}

func TestImagesThatNobodyCanPull(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{
		"Nginx":                            "each part",
		"a b":                              "each part",
		"library/Nginx":                    "each part",
		"a//b":                             "each part",
		"/a":                               "each part",
		"a/":                               "each part",
		"-a":                               "each part",
		"a.":                               "each part",
		"a..b":                             "each part",
		"a___b":                            "each part",
		"a.-b":                             "each part",
		"ä":                                "each part",
		"http://example.com/a":             "each part",
		"example.com":                      "",
		"ex ample.com/a":                   "the registry",
		"a:":                               "the tag",
		"a:.1":                             "the tag",
		"a:b c":                            "the tag",
		"a:1:2":                            "the tag",
		"a:" + strings.Repeat("x", 129):    "the tag",
		"a@":                               "a digest",
		"a@sha256:abc":                     "a digest",
		"a@" + strings.Repeat("a", 64):     "a digest",
		"a@x:" + strings.Repeat("g", 64):   "a digest",
		"a@b@x:" + strings.Repeat("a", 64): "a digest",
		"":                                 "each part",
	} {
		got := strings.Join(checkImage(ref), "")
		if want == "" {
			require.Empty(t, got, ref)
			continue
		}
		require.Contains(t, got, want, ref)
	}
}

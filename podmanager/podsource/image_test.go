package podsource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckImage_ValidReferences(t *testing.T) {
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

func TestCheckImage_InvalidReferences(t *testing.T) {
	t.Parallel()
	for ref, why := range map[string]string{
		"":                                    "invalid reference format",
		"Nginx":                               "must be lowercase",
		"library/Nginx":                       "must be lowercase",
		"a b":                                 "invalid reference format",
		"a//b":                                "invalid reference format",
		"/a":                                  "invalid reference format",
		"a/":                                  "invalid reference format",
		"../a":                                "invalid reference format",
		"-a":                                  "invalid reference format",
		"a.":                                  "invalid reference format",
		"a..b":                                "invalid reference format",
		"a___b":                               "invalid reference format",
		"a.-b":                                "invalid reference format",
		"ä":                                   "invalid reference format",
		"http://example.com/a":                "invalid reference format",
		"ex ample.com/a":                      "invalid reference format",
		"a:":                                  "invalid reference format",
		"a:.1":                                "invalid reference format",
		"a:b c":                               "invalid reference format",
		"a:1:2":                               "invalid reference format",
		"a:" + strings.Repeat("x", 129):       "invalid reference format",
		"a/" + strings.Repeat("x", 255):       "must not be more than 255 characters",
		"a@":                                  "invalid reference format",
		"a@sha256:abc":                        "invalid reference format",
		"a@" + strings.Repeat("a", 64):        "invalid reference format",
		"a@x:" + strings.Repeat("g", 64):      "invalid reference format",
		"a@b@x:" + strings.Repeat("a", 64):    "invalid reference format",
		"a@sha256:" + strings.Repeat("A", 64): "invalid checksum digest format",
		strings.Repeat("0a", 32):              "64-byte hexadecimal strings",
	} {
		require.Contains(t, strings.Join(checkImage(ref), ""), why, ref)
	}
}

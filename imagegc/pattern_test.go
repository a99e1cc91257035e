package imagegc_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/imagegc"
)

func TestPatterns(t *testing.T) {
	img := imagegc.Image{
		Tags: []string{"docker.io/library/nginx:1.27", "registry.example:5000/team/web:2"}, Digests: []string{"docker.io/team/app@sha256:" + hexA},
		Labels: map[string]string{"tier": "gold-1", "empty": ""},
	}
	for _, tc := range []struct {
		pattern imagegc.Pattern
		want    bool
	}{
		{imagegc.Pattern{}, false},
		{imagegc.Pattern{Name: "*"}, true},
		{imagegc.Pattern{Name: "nginx:1.27"}, true},
		{imagegc.Pattern{Name: "nginx:*"}, true},
		{imagegc.Pattern{Name: "library/nginx:*"}, true},
		{imagegc.Pattern{Name: "docker.io/*"}, true},
		{imagegc.Pattern{Name: "registry.example:5000/*"}, true},
		{imagegc.Pattern{Name: "registry.example:5000/*:2"}, true},
		{imagegc.Pattern{Name: "*/web:2"}, true},
		{imagegc.Pattern{Name: "*sha256:" + hexA}, true},
		{imagegc.Pattern{Name: "team/app@*"}, true},
		{imagegc.Pattern{Name: "nginx"}, false},
		{imagegc.Pattern{Name: "*/nginx"}, false},
		{imagegc.Pattern{Name: "web:2"}, false},
		{imagegc.Pattern{Labels: map[string]string{"tier": "gold-*"}}, true},
		{imagegc.Pattern{Labels: map[string]string{"tier": "*", "empty": ""}}, true},
		{imagegc.Pattern{Labels: map[string]string{"tier": "gold"}}, false},
		{imagegc.Pattern{Labels: map[string]string{"missing": "*"}}, false},
		{imagegc.Pattern{Name: "nginx:*", Labels: map[string]string{"tier": "gold-1"}}, true},
		{imagegc.Pattern{Name: "redis:*", Labels: map[string]string{"tier": "gold-1"}}, false},
	} {
		require.Equal(t, tc.want, tc.pattern.Matches(img), tc.pattern)
	}
	require.False(t, imagegc.Pattern{Name: "*"}.Matches(imagegc.Image{ID: "x"}), "it has no name")
}

// FuzzPattern compares with regular expressions.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"*", "a*", "*a", "a*b*a", "**", "", "aa*aa"} {
		f.Add(s, "aba")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if pattern == "" || strings.HasPrefix(name, "docker.io/") || !utf8.ValidString(pattern) || !utf8.ValidString(name) {
			return
		}
		want := regexp.MustCompile("^(?s:" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + ")$")
		got := imagegc.Pattern{Name: pattern}.Matches(imagegc.Image{Tags: []string{name}})
		require.Equal(t, want.MatchString(name), got)
	})
}

// FuzzNames: whatever a name is, a lease by it keeps the image that has it.
func FuzzNames(f *testing.F) {
	for name := range names() {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" {
			return
		}
		for _, img := range []*runtimeapi.Image{
			{Id: name}, {Id: hexA, RepoTags: []string{name}}, {Id: hexA, RepoDigests: []string{name}},
		} {
			digest := len(img.RepoDigests) > 0
			if digest != strings.Contains(name, "@") || len(img.RepoTags) > 0 && (strings.HasPrefix(name, "sha256:") || len(name) == 64) {
				continue // no runtime lists such a thing
			}
			s := &script{images: []*runtimeapi.Image{img}}
			m := s.manager(t)
			m.Acquire(name, "me", time.Hour)
			require.NoError(t, m.DeleteUnusedImages(t.Context()))
			require.Len(t, s.images, 1)
		}
	})
}

func TestPreferencesOfTheUser(t *testing.T) { // kubernetes#68549
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB", "c:1 1GiB", "kept:1 1GiB", "mine:1 1GiB", "both:1 1GiB"}, func(c *imagegc.Config) {
		c.Keep = []imagegc.Pattern{{Name: "none:*"}, {Name: "kept:*"}, {Name: "both:*"}}
		c.Prefer = []imagegc.Pattern{{Name: "c:1"}, {Name: "both:*"}}
		c.Preference = func(i imagegc.Image) imagegc.Preference {
			switch shortName(i.Tags) {
			case "mine:1":
				return imagegc.Keep
			case "b:1", "kept:1":
				return imagegc.Prefer
			}
			return imagegc.Default
		}
	})
	r.old()
	res, err := r.Free(t.Context(), 2*gib)
	require.NoError(t, err)
	require.Equal(t, []string{"b:1 space", "c:1 space"}, removed(res))
	require.Equal(t, "both:1 kept:1 mine:1", r.deleteUnused())
}

// labelled answers verbosely.
type labelled struct {
	info  map[string]string // by image
	err   error
	calls int
}

func (l *labelled) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	l.calls++
	if !verbose || l.err != nil {
		return nil, l.err
	}
	return &runtimeapi.ImageStatusResponse{Info: map[string]string{"info": l.info[spec.Image]}}, nil
}

func TestLabelsAreAskedForOnceForEachImage(t *testing.T) {
	l := &labelled{info: map[string]string{
		hexA: `{"chainID":"x","imageSpec":{"architecture":"amd64","config":{"Labels":{"keep":"yes"}}}}`, // containerd's and CRI-O's
		hexB: `{"imageSpec":{"config":{}}}`,
		hexC: `{`,
	}}
	s := &script{images: []*runtimeapi.Image{{Id: hexA}, {Id: hexB}, {Id: hexC}, {Id: "silent"}}}
	m := s.manager(t, func(c *imagegc.Config) {
		c.Labels, c.Keep = l, []imagegc.Pattern{{Labels: map[string]string{"keep": "*"}}}
	})
	plan, err := m.Plan(t.Context())
	require.NoError(t, err)
	why := map[string]imagegc.Reason{}
	for _, v := range plan.Verdicts {
		why[v.Image.ID] = v.Reason
	}
	require.Equal(t, map[string]imagegc.Reason{
		hexA: imagegc.ReasonKept, hexB: imagegc.ReasonNotNeeded, hexC: imagegc.ReasonUnknown, "silent": imagegc.ReasonUnknown,
	}, why)
	require.Equal(t, 4, l.calls)
	l.info[hexC], l.err = `{}`, errors.New("busy")
	require.NoError(t, m.Detect(t.Context()))
	require.Equal(t, 6, l.calls, "only the unknown ones")
	l.err = nil
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Len(t, s.images, 2, "the kept and the silent one")
}

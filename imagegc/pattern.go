package imagegc

import (
	"fmt"
	"strings"
)

// Preference is what a user says about an image.
type Preference int

// What a user can say.
const (
	// Default leaves the image to the policy.
	Default Preference = iota
	// Prefer has it go before all images that are not preferred, when space is
	// needed. It makes no image go that would have stayed otherwise.
	Prefer
	// Keep has it stay, whatever happens.
	Keep
)

// String returns keep, prefer or default.
func (p Preference) String() string {
	switch p {
	case Keep:
		return "keep"
	case Prefer:
		return "prefer"
	default:
		return "default"
	}
}

// MarshalText writes the preference as its String.
func (p Preference) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (p *Preference) UnmarshalText(text []byte) error {
	for _, known := range []Preference{Default, Prefer, Keep} {
		if string(text) == known.String() {
			*p = known
			return nil
		}
	}
	return fmt.Errorf("%q is not a preference", text)
}

// Pattern describes images. Where both of its fields are given, both must fit.
type Pattern struct {
	// Name fits an image if it is one of its tags or digests, in full, as in
	// "docker.io/library/nginx:1.27", or as people write it, "nginx:1.27". A star
	// stands for any characters, slashes included.
	Name string
	// Labels fit if the image has all of them; a star in a value stands for any
	// characters.
	Labels map[string]string
}

// Matches says whether the pattern fits an image. The zero Pattern fits none.
func (p Pattern) Matches(img Image) bool {
	if p.Name == "" && len(p.Labels) == 0 {
		return false
	}
	for key, glob := range p.Labels {
		value, ok := img.Labels[key]
		if !ok || !matchGlob(glob, value) {
			return false
		}
	}
	return p.Name == "" || p.matchesAny(img.Tags) || p.matchesAny(img.Digests)
}

func (p Pattern) matchesAny(names []string) bool {
	for _, name := range names {
		if matchGlob(p.Name, name) {
			return true
		}
		short, ok := strings.CutPrefix(name, "docker.io/")
		if ok && (matchGlob(p.Name, short) || matchGlob(p.Name, strings.TrimPrefix(short, "library/"))) {
			return true
		}
	}
	return false
}

// matchGlob says whether s fits a pattern in which stars stand for any
// characters. It looks for the pieces between the stars from the left, each as
// early as it can be, so it never goes back.
func matchGlob(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	s, ok := strings.CutPrefix(s, head)
	if !ok || !star {
		return ok && s == ""
	}
	for {
		piece, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(s, piece)
		}
		i := strings.Index(s, piece)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(piece):], more
	}
}

// preference joins what the patterns and the function say.
func (c Config) preference(img Image) Preference {
	said := c.Preference(img)
	for _, p := range c.Keep {
		if said == Keep || p.Matches(img) {
			return Keep
		}
	}
	for _, p := range c.Prefer {
		if said == Default && p.Matches(img) {
			return Prefer
		}
	}
	return said
}

package podrunner_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// FuzzExpansion compares the expansion of command lines with a slow
// implementation of the rules, one character at a time.
func FuzzExpansion(f *testing.F) {
	for _, s := range []string{"", "$(A)", "$$(A)", "$$$(A)$", "$(A$(B))", "$(", "$()", "($A)", "$(LOOP)", "\x00$(\xff)"} {
		f.Add(s)
	}
	env := map[string]string{"A": "1", "B": "$(A)$$", "LOOP": "$(LOOP)", "": "nothing"}
	f.Fuzz(func(t *testing.T, s string) {
		c := &corev1.Container{Args: []string{s}}
		for _, name := range []string{"A", "B", "LOOP", ""} {
			// each $ is doubled, because $$ becomes $
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: strings.ReplaceAll(env[name], "$", "$$")})
		}
		got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
		require.NoError(t, err)
		require.Equal(t, slowExpansion(s, env), got.GetArgs()[0])
	})
}

func slowExpansion(s string, env map[string]string) string {
	out := ""
	for i := 0; i < len(s); i++ {
		closing := strings.IndexByte(s[i:], ')')
		switch {
		case s[i] != '$' || i+1 == len(s):
			out += s[i : i+1]
		case s[i+1] == '$':
			out += "$"
			i++
		case s[i+1] == '(' && closing > 0:
			value, known := env[s[i+2:i+closing]]
			if !known {
				value = s[i : i+closing+1]
			}
			out += value
			i += closing
		default:
			out += "$"
		}
	}
	return out
}

package status_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/status"
)

// TestCheckTransition parses two scenes of the same pod (see scene). The policies and rules
// of the first scene apply to both.
func TestCheckTransition(t *testing.T) {
	t.Parallel()
	illegal := func(kind, name string) string {
		return "terminated " + kind + " " + name + " attempted illegal transition to non-terminated state"
	}
	for name, tc := range map[string]struct {
		policy   corev1.RestartPolicy
		old, new string
		want     string
	}{
		"same":                             {"Never", "exit0", "exit0", ""},
		"first seen":                       {"Never", "none", "run", ""},
		"missing in the new status":        {"Never", "exit0", "none", ""},
		"runs, then ends":                  {"Never", "run", "exit1", ""},
		"runs, then waits":                 {"Never", "run", "wait", ""},
		"never, succeeded":                 {"Never", "exit0", "run", illegal("container", "c0")},
		"never, failed":                    {"Never", "exit1", "wait", illegal("container", "c0")},
		"never, empty state":               {"Never", "exit1", "empty", illegal("container", "c0")},
		"never, two of three":              {"Never", "exit1 run exit0", "run run run", illegal("container", "c0") + "\n" + illegal("container", "c2")},
		"on failure, succeeded":            {"OnFailure", "exit0", "run", illegal("container", "c0")},
		"on failure, failed":               {"OnFailure", "exit1", "run", ""},
		"on failure, failed, own never":    {"OnFailure", "exit1@Never", "run", ""},
		"always":                           {"Always", "exit0", "run", ""},
		"always, own never":                {"Always", "exit0@Never", "run", ""},
		"own always":                       {"Never", "exit0@Always", "run", ""},
		"rule matches":                     {"Never", "exit42@Never+rule42", "run", ""},
		"rule does not match":              {"Never", "exit1@Never+rule42", "run", illegal("container", "c0")},
		"a rule restarts all containers":   {"Never", "exit0 run@Never+all42", "run run", ""},
		"init":                             {"Never", "i:exit0 run", "i:run run", illegal("init container", "c0")},
		"init, first seen":                 {"Never", "i:none", "i:run", ""},
		"init, on failure, failed":         {"OnFailure", "i:exit1", "i:run", ""},
		"init, on failure, succeeded":      {"OnFailure", "i:exit0", "i:run", illegal("init container", "c0")},
		"init, own always policy by rules": {"Never", "i:exit42@Never+rule42", "i:run", ""},
		"sidecar":                          {"Never", "s:exit0 run", "s:run run", ""},
	} {
		old, next := parseScene(t, tc.policy, tc.old), parseScene(t, tc.policy, tc.new)
		err := status.CheckTransition(old.pod, &old.s, &next.s)
		if tc.want == "" {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, tc.want, name)
		}
	}
}

func TestCheckTransition_ContainersMissingInTheSpec(t *testing.T) {
	t.Parallel()
	old := parseScene(t, "Never", "i:exit0 exit0")
	next := parseScene(t, "Never", "i:run run")
	err := status.CheckTransition(&corev1.Pod{}, &old.s, &next.s)
	require.Error(t, err)
	require.Len(t, strings.Split(err.Error(), "\n"), 2)
	require.ErrorContains(t, err, "found mismatch between pod spec and status, container: c0")
	require.ErrorContains(t, err, "terminated container c1 attempted")
}

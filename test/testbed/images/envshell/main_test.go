package main

import (
	"slices"
	"testing"
)

func TestCommand_OnlyTheScriptEnvRunsWithoutAShell(t *testing.T) {
	for _, test := range []struct{ args, want []string }{
		{[]string{"sh", "-c", " env\n"}, []string{"env"}},
		{[]string{"sh", "-c", "env; date"}, []string{"sh", "-c", "env; date"}},
		{[]string{"/bin/sh"}, []string{"/bin/sh"}},
		{[]string{"sh", "-c", "env", "x"}, []string{"sh", "-c", "env", "x"}},
	} {
		if got := command(test.args); !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.args, got, test.want)
		}
	}
}

package kubeletapi_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

func TestJournalctl_ErrorsOfTheProgramAreInItsOutput(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	require.Error(t, kubeletapi.Journalctl(t.Context(), io.Discard), "there is no journalctl")
	script := filepath.Join(os.Getenv("PATH"), "journalctl")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho \"$@\"; exit 1\n"), 0o700))
	var out strings.Builder
	require.NoError(t, kubeletapi.Journalctl(t.Context(), &out, "--unit=web", "--grep=a b"))
	require.Equal(t, "--unit=web --grep=a b\n", out.String())
}

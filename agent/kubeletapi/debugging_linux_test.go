package kubeletapi_test

import (
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

func TestSystemLogs_PipeDoesNotBlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	cfg := withToken(t, kubeletapi.Config{SystemLogs: dir, Journal: fakeJournal})
	code, _ := ask(t, cfg, "/logs/pipe")
	require.Equal(t, http.StatusForbidden, code)
	_, body := ask(t, cfg, "/logs/?query=pipe")
	require.Contains(t, body, "error getting log for pipe")
}

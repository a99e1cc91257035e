package kubeletapi

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFiles_SlowDiskDelaysOnlyOneRequest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, []byte("one"), 0o600))
	reads, begun := make(chan struct{}, 1), make(chan struct{})
	reads <- struct{}{} // the first read does not block
	w, err := watch(slog.New(slog.DiscardHandler), func(data ...[]byte) (string, error) {
		select {
		case <-reads:
		default:
			close(begun)
			<-reads
		}
		return string(data[0]), nil
	}, file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("three"), 0o600))
	w.checkedAt = time.Time{} // the next get checks the file
	slow := make(chan string)
	get := func() string {
		text, _ := w.get()
		return text
	}
	go func() { slow <- get() }()
	<-begun
	require.Equal(t, "one", get(), "other callers must not wait for the file")
	reads <- struct{}{}
	require.Equal(t, "three", <-slow)
	require.Equal(t, "three", get())
}

func TestFiles_UnusableFileIsLoggedOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, []byte("good"), 0o600))
	var log bytes.Buffer
	w, err := watch(slog.New(slog.NewTextHandler(&log, nil)), func(data ...[]byte) (string, error) {
		if text := string(data[0]); text != "good" && text != "better" {
			return "", errors.New(text)
		}
		return string(data[0]), nil
	}, file)
	require.NoError(t, err)
	for _, step := range []struct {
		text, want string
		told       int
	}{
		{"bad", "good", 1}, {"bad", "good", 1}, {"worse", "good", 2}, {"better", "better", 2}, {"bad", "better", 3},
	} {
		require.NoError(t, os.WriteFile(file, []byte(step.text), 0o600))
		for range 3 {
			w.checkedAt = time.Time{}
			text, ok := w.get()
			require.True(t, ok)
			require.Equal(t, step.want, text, step.text)
		}
		require.Equal(t, step.told, strings.Count(log.String(), "the previous certificates stay in use"), log.String())
	}
}

func TestNew_WarnsOfWorldReadableSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	for mode, told := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: runtime.GOOS != "windows"} {
		require.NoError(t, os.WriteFile(file, []byte("s3cret"), 0o600))
		require.NoError(t, os.Chmod(file, mode))
		var log bytes.Buffer
		_, err := newFileToken(file, slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		require.Equal(t, told, strings.Contains(log.String(), "readable by all users"), mode)
		require.NotContains(t, log.String(), "s3cret")
	}
}

func TestFileToken_InvalidTokens(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"t": true, "t\n": true, " t\r\n": true, "": false, "\n": false, "a b": false, "a\nb": false, "\x00": false, "a\x7f": false, "ü": false} {
		_, err := parseToken([]byte(text))
		require.Equal(t, ok, err == nil, "%q", text)
	}
}
